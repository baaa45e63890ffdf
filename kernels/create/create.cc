#include "kernels/create/create.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "kernels/cpu/backend.h"
#include "kernels/reference/backend.h"

namespace tessera::kernels {

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const std::string& device,
                                                       base::ComputePool& pool) {
  if (device == "cpu") return std::make_unique<cpu::CpuBackend>(pool);
  if (device == "reference") return std::make_unique<reference::ReferenceBackend>(pool);
  return base::BadField(
      "device", "BAD_OPTION",
      absl::StrCat("device \"", device, "\" is not there; this build has: cpu, reference"));
}

}  // namespace tessera::kernels
