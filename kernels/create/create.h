#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/compute_pool.h"
#include "kernels/backend.h"

namespace tessera::kernels {

// `device`: "cpu", "reference" or "cuda:N"; anything else, or a device this build or machine does
// not have, is INVALID_ARGUMENT that lists what there is. `pool` outlives the backend.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const std::string& device,
                                                       base::ComputePool& pool);

}  // namespace tessera::kernels
