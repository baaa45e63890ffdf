#include "common/store/int8_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::store {
namespace {

constexpr float kMostCode = 127;
constexpr float kHalfLimit = 65520;  // from here on f16 is infinite

float ScaleAt(const std::byte* scales, int64_t index) {
  float scale;
  std::memcpy(&scale, scales + sizeof(scale) * index, sizeof(scale));
  return scale;
}

// A block of nothing but zeros, or of what no scale can hold, has the scale 1.
float ScaleFor(absl::Span<const float> block) {
  float most = 0;
  for (const float value : block) most = std::max(most, std::fabs(value));
  const float scale = most / kMostCode;
  return scale >= std::numeric_limits<float>::min() ? scale : 1.0f;
}

// Whether the row may be kept so. Sums in double: squares of 65504 fit, and small ones count.
bool QuantizeRow(absl::Span<const float> row, int8_t* codes, std::byte* scales) {
  double norm = 0;
  double lost = 0;
  for (size_t begin = 0; begin < row.size(); begin += kScaleColumns) {
    const absl::Span<const float> block = row.subspan(begin, kScaleColumns);
    const float scale = ScaleFor(block);
    std::memcpy(scales, &scale, sizeof(scale));
    scales += sizeof(scale);
    for (const float value : block) {
      const float code = std::clamp(std::nearbyintf(value / scale), -kMostCode, kMostCode);
      *codes++ = static_cast<int8_t>(code);
      const double error = double{value} - double{code * scale};
      norm += double{value} * value;
      lost += error * error;
    }
  }
  return lost <= kMaxInt8Error * kMaxInt8Error * norm;
}

absl::Status Refused(int64_t row, absl::string_view what) {
  return base::Error(absl::StatusCode::kInvalidArgument, "NONFINITE_ROWS",
                     absl::StrCat("row ", row, " of an int8 record has ", what));
}

// Blocks of a fixed size: the compiler makes vectors of the inner loop.
bool HasCodeBelowRange(const std::byte* codes, size_t count) {
  constexpr size_t kBlock = 64;
  const auto bad = [](std::byte code) { return code == std::byte{0x80} ? 1 : 0; };
  int found = 0;
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    unsigned char block = 0;
    for (size_t j = 0; j < kBlock; ++j) block |= static_cast<unsigned char>(bad(codes[i + j]));
    found |= block;
  }
  for (; i < count; ++i) found |= bad(codes[i]);
  return found != 0;
}

void Widen(const int8_t* codes, float scale, size_t count, float* out) {
  if (count == kScaleColumns) {
    for (int64_t i = 0; i < kScaleColumns; ++i) out[i] = static_cast<float>(codes[i]) * scale;
    return;
  }
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(codes[i]) * scale;
}

}  // namespace

std::optional<std::vector<std::byte>> QuantizeRows(absl::Span<const float> values, int64_t rows,
                                                   int64_t width) {
  const size_t scale_bytes = sizeof(float) * static_cast<size_t>(ScalesOf(width));
  std::vector<std::byte> out(values.size() + rows * scale_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    auto* codes = reinterpret_cast<int8_t*>(out.data()) + row * width;
    std::byte* scales = out.data() + values.size() + row * scale_bytes;
    if (!QuantizeRow(values.subspan(row * width, width), codes, scales)) return std::nullopt;
  }
  return out;
}

absl::Status CheckInt8Rows(absl::Span<const std::byte> data, int64_t rows, int64_t width) {
  const int64_t scales = ScalesOf(width);
  CHECK_EQ(data.size(), static_cast<size_t>(rows) * (width + scales * sizeof(float)));
  for (int64_t row = 0; row < rows; ++row) {
    if (HasCodeBelowRange(data.data() + row * width, width)) return Refused(row, "the code -128");
  }
  for (int64_t i = 0; i < rows * scales; ++i) {
    const float scale = ScaleAt(data.data() + rows * width, i);
    if (scale >= std::numeric_limits<float>::min() && kMostCode * scale < kHalfLimit) continue;
    return Refused(i / scales, absl::StrCat("the scale ", scale));
  }
  return absl::OkStatus();
}

void DequantizeRows(absl::Span<const std::byte> data, int64_t rows, int64_t width,
                    absl::Span<float> out) {
  CHECK_EQ(out.size(), static_cast<size_t>(rows * width));
  const int64_t scales = ScalesOf(width);
  const auto* codes = reinterpret_cast<const int8_t*>(data.data());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < scales; ++i) {
      const int64_t begin = row * width + i * kScaleColumns;
      const int64_t count = std::min(kScaleColumns, width - i * kScaleColumns);
      Widen(codes + begin, ScaleAt(data.data() + rows * width, row * scales + i), count,
            out.data() + begin);
    }
  }
}

}  // namespace tessera::store
