#pragma once

#include <memory>

#include "common/base/compute_pool.h"
#include "kernels/backend.h"

namespace tessera::kernels::cpu {

// Ops run at once, in f32 with SIMD, on `pool`, which outlives the backend.
std::unique_ptr<Backend> CreateCpuBackend(base::ComputePool& pool);

}  // namespace tessera::kernels::cpu
