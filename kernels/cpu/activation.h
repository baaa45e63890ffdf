#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

// out = activation(gate) * up
void GatedActivation(const DeviceView& gate, const DeviceView& up, Activation activation,
                     const DeviceView& out, Context& context);

}  // namespace tessera::kernels::cpu
