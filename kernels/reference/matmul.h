#pragma once

#include "common/base/compute_pool.h"
#include "kernels/backend.h"

namespace tessera::kernels::reference {

void MatMul(const MatMulParams& params, base::ComputePool& pool);

}  // namespace tessera::kernels::reference
