#pragma once

#include "kernels/backend.h"

namespace tessera::kernels::reference {

double Activate(Activation activation, double x);

// out = activation(gate) * up
void GatedActivation(const DeviceView& gate, const DeviceView& up, Activation activation,
                     const DeviceView& out);

}  // namespace tessera::kernels::reference
