#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

void RotaryAngles(const RotaryAnglesParams& params, Context& context);
void RotaryKvWrite(const RotaryKvParams& params, Context& context);

}  // namespace tessera::kernels::cpu
