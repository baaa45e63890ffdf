#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

// Rows as 8-bit integers: codes [rows, width] in -127..127, then f32 scales
// [rows, ceil(width / 128)]; value = code * scale. Little-endian, without padding.
namespace tessera::store {

inline constexpr int64_t kScaleColumns = 128;
// Of the relative L2 error of every row.
inline constexpr double kMaxInt8Error = 0.01;

inline int64_t ScalesOf(int64_t width) { return (width + kScaleColumns - 1) / kScaleColumns; }

// Codes and scales of `values` [rows, width]: scale = greatest magnitude of the 128 columns / 127,
// round to nearest even. nullopt where a row would lose more than kMaxInt8Error.
// REQUIRES: all within +-65504.
std::optional<std::vector<std::byte>> QuantizeRows(absl::Span<const float> values, int64_t rows,
                                                   int64_t width);

// INVALID_ARGUMENT, reason NONFINITE_ROWS: a scale that is not finite and positive or leads beyond
// what f16 can hold, or the code -128. REQUIRES: the size fits.
absl::Status CheckInt8Rows(absl::Span<const std::byte> data, int64_t rows, int64_t width);

// The values. REQUIRES: as CheckInt8Rows wants it; out.size() == rows * width.
void DequantizeRows(absl::Span<const std::byte> data, int64_t rows, int64_t width,
                    absl::Span<float> out);

}  // namespace tessera::store
