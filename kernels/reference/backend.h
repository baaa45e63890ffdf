#pragma once

#include <memory>

#include "common/base/compute_pool.h"
#include "kernels/backend.h"

namespace tessera::kernels::reference {

// Ops run at once, in double, each as one obvious loop. `pool` outlives the backend.
std::unique_ptr<Backend> CreateReferenceBackend(base::ComputePool& pool);

}  // namespace tessera::kernels::reference
