#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/tensor/tensor.h"

namespace tessera::weights {

// Index of the first element, row-major, that is NaN or infinite; nullopt when all are finite.
// Looks at exponent bits only, at the speed of memory. Any thread. REQUIRES: dtype is f32, f16 or
// bf16.
std::optional<int64_t> FirstNonfinite(const TensorView& view);

// INVALID_ARGUMENT (reason WEIGHTS_NONFINITE) names the tensor, the value and its place. Reads
// every byte: call it right before the tensor is handed to a backend, so that its pages come from
// the disk once. REQUIRES: dtype is f32, f16 or bf16.
absl::Status CheckFinite(absl::string_view name, const TensorView& view);

}  // namespace tessera::weights
