#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

// Every output is one chain of fused products over k, whatever m, the tile and the threads are.
void MatMul(const MatMulParams& params, Context& context);

// The instruction set in use: "AVX3".
const char* TargetName();

}  // namespace tessera::kernels::cpu
