#pragma once

#include "kernels/backend.h"

namespace tessera::kernels::reference {

void RmsNorm(const DeviceView& x, const DeviceVector& weight, float epsilon, const DeviceView& out);
void LayerNorm(const DeviceView& x, const DeviceVector& weight, const DeviceVector& bias,
               float epsilon, const DeviceView& out);

}  // namespace tessera::kernels::reference
