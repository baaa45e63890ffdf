#include "common/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "common/base/half.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

TEST(DTypeTest, NamesAreDistinctAndSizesArePowersOfTwo) {
  std::set<absl::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(Name(dtype)).second) << Name(dtype);
    const size_t size = SizeOf(dtype);
    EXPECT_TRUE(size == 1 || size == 2 || size == 4 || size == 8) << Name(dtype);
  }
}

TEST(ShapeTest, AScalarHasOneElementAndAZeroExtentNone) {
  EXPECT_EQ(NumElements({}), 1);
  EXPECT_EQ(NumElements({3, 0, 5}), 0);
  EXPECT_EQ(NumElements({3, 4}), 12);
  EXPECT_EQ(ShapeText({448, 64}), "[448, 64]");
  EXPECT_EQ(ShapeText({}), "[]");
}

TEST(TensorTest, StartsAtZeroAndSharesItsBytesWithItsView) {
  Tensor tensor(DType::kF32, {2, 3});
  EXPECT_EQ(tensor.bytes().size(), 24u);
  EXPECT_THAT(tensor.f32(), Each(0.0f));
  tensor.f32()[5] = 2.5f;
  const TensorView view = tensor.view();
  EXPECT_EQ(view.bytes(), 24u);
  EXPECT_THAT(ToFloats(view), ElementsAre(0, 0, 0, 0, 0, 2.5f));
}

TEST(TensorTest, ToFloatsReadsUnalignedBytesOfEveryFloatType) {
  std::byte bytes[9] = {};
  const float f32 = -1.25f;
  std::memcpy(bytes + 1, &f32, sizeof(f32));
  EXPECT_THAT(ToFloats({DType::kF32, {1}, bytes + 1}), ElementsAre(-1.25f));
  const uint16_t f16[2] = {base::FloatToHalf(0.5f), base::FloatToHalf(-3)};
  std::memcpy(bytes + 1, f16, sizeof(f16));
  EXPECT_THAT(ToFloats({DType::kF16, {2}, bytes + 1}), ElementsAre(0.5f, -3.0f));
  const uint16_t bf16[2] = {base::FloatToBf16(0.5f), base::FloatToBf16(-3)};
  std::memcpy(bytes + 1, bf16, sizeof(bf16));
  EXPECT_THAT(ToFloats({DType::kBF16, {2}, bytes + 1}), ElementsAre(0.5f, -3.0f));
  EXPECT_TRUE(ToFloats({DType::kF32, {0, 4}, nullptr}).empty());
}

TEST(TensorDeathTest, F32OfAnotherTypeIsOurBug) {
  Tensor tensor(DType::kF16, {2});
  EXPECT_DEATH(tensor.f32(), "CHECK failed");
}

}  // namespace
}  // namespace tessera
