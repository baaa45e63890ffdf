#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

// Sums run in 16 chains and end in one tree, the same on every target and thread count.
void RmsNorm(const DeviceView& x, const DeviceVector& weight, float epsilon, const DeviceView& out,
             Context& context);
void LayerNorm(const DeviceView& x, const DeviceVector& weight, const DeviceVector& bias,
               float epsilon, const DeviceView& out, Context& context);

}  // namespace tessera::kernels::cpu
