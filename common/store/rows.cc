#include "common/store/rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/half.h"
#include "common/base/status_macros.h"
#include "common/store/int8_rows.h"

namespace tessera::store {
namespace {

constexpr float kMaxHalf = 65504;

absl::Status NonfiniteAt(size_t index, int64_t width, double value) {
  return base::Error(absl::StatusCode::kInvalidArgument, "NONFINITE_ROWS",
                     absl::StrCat("row ", index / width, ", column ", index % width, " is ", value,
                                  ": rows that are not finite are never stored"));
}

// Index of the first element whose exponent bits are all set, or `count`. Blocks of a fixed size,
// without a branch within: the compiler makes vectors of them. The place is looked for only when
// there is one.
template <typename Word>
size_t FirstNonfinite(const std::byte* data, size_t count, Word exponent) {
  constexpr size_t kBlock = 64;
  const auto is_bad = [data, exponent](size_t i) -> Word {
    Word word;
    std::memcpy(&word, data + i * sizeof(Word), sizeof(Word));
    return (word & exponent) == exponent ? 1 : 0;
  };
  size_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    Word bad = 0;
    for (size_t j = 0; j < kBlock; ++j) bad |= is_bad(i + j);
    if (bad != 0) break;
  }
  while (i < count && !is_bad(i)) ++i;
  return i;
}

absl::Status CheckFinite(absl::Span<const std::byte> data, int64_t width, DType dtype) {
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

}  // namespace

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

absl::StatusOr<StoredRows> MakeRows(absl::Span<const float> values, int64_t rows, int64_t width,
                                    DType wanted) {
  StoredRows out;
  out.dtype = wanted == DType::kI8 ? DType::kF16 : wanted;
  ASSIGN_OR_RETURN(out.data, RowsFromF32(values, rows, width, out.dtype));
  if (wanted != DType::kI8) return out;
  auto codes = QuantizeRows(values, rows, width);
  if (codes.has_value()) out = {DType::kI8, *std::move(codes)};
  return out;
}

size_t RowBytes(DType dtype, int64_t rows, int64_t width) {
  CHECK(dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kI8);
  const int64_t scales = dtype == DType::kI8 ? ScalesOf(width) : 0;
  return static_cast<size_t>(rows) *
         (static_cast<size_t>(width) * SizeOf(dtype) + static_cast<size_t>(scales) * sizeof(float));
}

absl::Status CheckRows(absl::Span<const std::byte> data, int64_t rows, int64_t width, DType dtype) {
  CHECK_EQ(data.size(), RowBytes(dtype, rows, width));
  return dtype == DType::kI8 ? CheckInt8Rows(data, rows, width) : CheckFinite(data, width, dtype);
}

FloatRows ToFloatRows(RecordPtr record) {
  FloatRows out;
  out.view = record->view();
  if (record->dtype != DType::kI8) {
    out.owner = std::move(record);
    return out;
  }
  const std::shared_ptr<float[]> values =
      std::make_shared_for_overwrite<float[]>(static_cast<size_t>(record->rows * record->width));
  DequantizeRows(record->data, record->rows, record->width,
                 {values.get(), static_cast<size_t>(record->rows * record->width)});
  out.view.dtype = DType::kF32;
  out.view.data = reinterpret_cast<const std::byte*>(values.get());
  out.owner = values;
  return out;
}

}  // namespace tessera::store
