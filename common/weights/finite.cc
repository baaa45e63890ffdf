#include "common/weights/finite.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/weights/safetensors.h"

namespace tessera::weights {
namespace {

constexpr int64_t kBlock = 2048;  // elements looked at together

// Element types by their bits: all exponent bits set means NaN or infinity. Adding the lowest one
// then carries into the sign's place, which `& exponent` has cleared: no comparison in the loop.
struct F32 {
  using Bits = uint32_t;
  static constexpr Bits exponent = 0x7f800000, lowest = 0x00800000, sign = 0x80000000;
};
struct F16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7c00, lowest = 0x0400, sign = 0x8000;
};
struct BF16 {
  using Bits = uint16_t;
  static constexpr Bits exponent = 0x7f80, lowest = 0x0080, sign = 0x8000;
};

template <typename T>
bool IsNonfinite(const std::byte* at) {
  typename T::Bits bits;
  std::memcpy(&bits, at, sizeof(bits));
  return (bits & T::exponent) == T::exponent;
}

// Whether any element of a whole block is. The fixed length lets the compiler use vectors.
template <typename T>
bool BlockHasNonfinite(const std::byte* data) {
  using Bits = typename T::Bits;
  Bits carried = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    carried = static_cast<Bits>(carried | static_cast<Bits>((bits & T::exponent) + T::lowest));
  }
  return (carried & T::sign) != 0;
}

template <typename T>
std::optional<int64_t> First(const std::byte* data, int64_t count) {
  constexpr int64_t kSize = sizeof(typename T::Bits);
  int64_t begin = 0;
  while (begin + kBlock <= count && !BlockHasNonfinite<T>(data + begin * kSize)) begin += kBlock;
  for (int64_t i = begin; i < count; ++i) {
    if (IsNonfinite<T>(data + i * kSize)) return i;
  }
  return std::nullopt;
}

// "[3, 17]" for element `index` of a tensor.
std::string PlaceText(const Shape& shape, int64_t index) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = index % shape[axis];
    index /= shape[axis];
  }
  return ShapeText(place);
}

}  // namespace

std::optional<int64_t> FirstNonfinite(const TensorView& view) {
  CHECK(IsFloat16Or32(view.dtype));
  const int64_t count = NumElements(view.shape);
  if (view.dtype == DType::kF32) return First<F32>(view.data, count);
  if (view.dtype == DType::kF16) return First<F16>(view.data, count);
  return First<BF16>(view.data, count);
}

absl::Status CheckFinite(absl::string_view name, const TensorView& view) {
  const std::optional<int64_t> index = FirstNonfinite(view);
  if (!index.has_value()) return absl::OkStatus();
  const int64_t size = static_cast<int64_t>(SizeOf(view.dtype));
  const TensorView one = {view.dtype, {1}, view.data + *index * size};
  return base::Error(
      absl::StatusCode::kInvalidArgument, "WEIGHTS_NONFINITE",
      absl::StrCat("tensor ", Quoted(name), " ", Name(view.dtype), ShapeText(view.shape),
                   ": element ", PlaceText(view.shape, *index), ", at byte ", *index * size,
                   " of its data, is ", ToFloats(one)[0], "; weights must be finite numbers"));
}

}  // namespace tessera::weights
