#include "kernels/cpu/backend.h"

#include "kernels/reference/backend.h"

namespace tessera::kernels::cpu {

std::unique_ptr<Backend> CreateCpuBackend(base::ComputePool& pool) {
  return reference::CreateReferenceBackend(pool);
}

}  // namespace tessera::kernels::cpu
