#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/dtype.h"

namespace tessera::store {

// The bytes of a record's rows from a tower's output: values [rows, width] as `dtype` (kF32 or
// kF16, round to nearest even). INVALID_ARGUMENT, reason NONFINITE_ROWS, naming row and column:
// NaN, infinity, and, as f16, a value beyond 65504. REQUIRES: values.size() == rows * width.
absl::StatusOr<std::vector<std::byte>> RowsFromF32(absl::Span<const float> values, int64_t rows,
                                                   int64_t width, DType dtype);

// The same refusal for rows that are already bytes [rows, width] of `dtype`.
// REQUIRES: dtype is kF32 or kF16; the size fits.
absl::Status CheckFinite(absl::Span<const std::byte> data, int64_t width, DType dtype);

}  // namespace tessera::store
