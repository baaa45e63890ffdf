#include "common/store/rows.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/half.h"

namespace tessera::store {
namespace {

constexpr float kMaxHalf = 65504;

absl::Status NonfiniteAt(size_t index, int64_t width, double value) {
  return base::Error(absl::StatusCode::kInvalidArgument, "NONFINITE_ROWS",
                     absl::StrCat("row ", index / width, ", column ", index % width, " is ", value,
                                  ": rows that are not finite are never stored"));
}

// Index of the first element whose exponent bits are all set, or `count`. The loop has no branch,
// so it runs as fast as memory; the place is looked for only when there is one.
template <typename Word>
size_t FirstNonfinite(const std::byte* data, size_t count, Word exponent) {
  const auto word_at = [data](size_t i) {
    Word word;
    std::memcpy(&word, data + i * sizeof(Word), sizeof(Word));
    return word;
  };
  Word bad = 0;
  for (size_t i = 0; i < count; ++i) bad |= (word_at(i) & exponent) == exponent;
  if (bad == 0) return count;
  size_t i = 0;
  while ((word_at(i) & exponent) != exponent) ++i;
  return i;
}

}  // namespace

absl::Status CheckFinite(absl::Span<const std::byte> data, int64_t width, DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16);
  const size_t count = data.size() / SizeOf(dtype);
  const size_t bad = dtype == DType::kF32
                         ? FirstNonfinite<uint32_t>(data.data(), count, 0x7f800000u)
                         : FirstNonfinite<uint16_t>(data.data(), count, 0x7c00u);
  if (bad == count) return absl::OkStatus();
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, data.data() + bad * sizeof(value), sizeof(value));
    return NonfiniteAt(bad, width, value);
  }
  uint16_t bits;
  std::memcpy(&bits, data.data() + bad * sizeof(bits), sizeof(bits));
  return NonfiniteAt(bad, width, base::HalfToFloat(bits));
}

absl::StatusOr<std::vector<std::byte>> RowsFromF32(absl::Span<const float> values, int64_t rows,
                                                   int64_t width, DType dtype) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16);
  CHECK_EQ(values.size(), static_cast<size_t>(rows * width));
  const float limit = dtype == DType::kF16 ? kMaxHalf : std::numeric_limits<float>::max();
  std::vector<std::byte> out(values.size() * SizeOf(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i]) <= limit)) return NonfiniteAt(i, width, values[i]);
  }
  if (dtype == DType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), values.data(), out.size());
    return out;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = base::FloatToHalf(values[i]);
    std::memcpy(out.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return out;
}

}  // namespace tessera::store
