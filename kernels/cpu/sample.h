#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

void Sample(const SampleParams& params, Context& context);

}  // namespace tessera::kernels::cpu
