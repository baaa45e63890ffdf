#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/store/embedding_record.h"
#include "common/tensor/dtype.h"
#include "common/tensor/tensor.h"

namespace tessera::store {

// The bytes of a record's rows from a tower's output: values [rows, width] as `dtype` (kF32 or
// kF16, round to nearest even). INVALID_ARGUMENT, reason NONFINITE_ROWS, naming row and column:
// NaN, infinity, and, as f16, a value beyond 65504. REQUIRES: values.size() == rows * width.
absl::StatusOr<std::vector<std::byte>> RowsFromF32(absl::Span<const float> values, int64_t rows,
                                                   int64_t width, DType dtype);

struct StoredRows {
  DType dtype = DType::kF16;
  std::vector<std::byte> data;  // as EmbeddingRecord::data
};

// The same for `wanted` kF32, kF16 or kI8. int8 is given where no row loses too much by it
// (int8_rows.h), else f16; the values are refused as for f16.
absl::StatusOr<StoredRows> MakeRows(absl::Span<const float> values, int64_t rows, int64_t width,
                                    DType wanted);

// Bytes of [rows, width], scales included. REQUIRES: kF32, kF16 or kI8; no overflow.
size_t RowBytes(DType dtype, int64_t rows, int64_t width);

// The refusal of RowsFromF32, or CheckInt8Rows, for rows that are already bytes [rows, width].
// REQUIRES: dtype is kF32, kF16 or kI8; the size is RowBytes.
absl::Status CheckRows(absl::Span<const std::byte> data, int64_t rows, int64_t width, DType dtype);

// Rows as a device takes them, and who owns their memory.
struct FloatRows {
  TensorView view;                    // [rows, width] f16 or f32
  std::shared_ptr<const void> owner;  // keeps `view` alive
};

// f16 and f32 rows as they lie in the record; int8 rows as f32, in memory of their own (some 4 ms
// for 1024 x 4096). REQUIRES: not null.
FloatRows ToFloatRows(RecordPtr record);

}  // namespace tessera::store
