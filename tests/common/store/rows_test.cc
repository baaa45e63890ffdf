#include "common/store/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/half.h"
#include "common/tensor/tensor.h"

namespace tessera::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(RowsTest, KeepsF32ToTheBitAndRoundsF16) {
  const float values[] = {1.0f, -0.1f, 65504.0f, 1e-8f};
  auto f32 = RowsFromF32(values, 2, 2, DType::kF32);
  ASSERT_TRUE(f32.ok()) << f32.status();
  EXPECT_THAT(ToFloats({DType::kF32, {4}, f32->data()}), ElementsAre(1.0f, -0.1f, 65504.0f, 1e-8f));
  auto f16 = RowsFromF32(values, 2, 2, DType::kF16);
  ASSERT_TRUE(f16.ok()) << f16.status();
  EXPECT_THAT(ToFloats({DType::kF16, {4}, f16->data()}),
              ElementsAre(1.0f, base::HalfToFloat(base::FloatToHalf(-0.1f)), 65504.0f, 0.0f));
}

// FAULTS B068.
TEST(RowsTest, RefusesWhatIsNotFinite) {
  for (float bad : {kInfinity, -kInfinity, kNan}) {
    for (DType dtype : {DType::kF32, DType::kF16}) {
      const float values[] = {1, 2, 3, 4, 5, bad};
      const absl::Status status = RowsFromF32(values, 2, 3, dtype).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(base::ReasonOf(status), "NONFINITE_ROWS");
      EXPECT_THAT(std::string(status.message()), HasSubstr("row 1, column 2"));
    }
  }
}

TEST(RowsTest, RefusesWhatF16CannotHold) {
  for (float bad : {70000.0f, -70000.0f, 65505.0f}) {
    EXPECT_EQ(base::ReasonOf(RowsFromF32({bad}, 1, 1, DType::kF16).status()), "NONFINITE_ROWS");
    EXPECT_TRUE(RowsFromF32({bad}, 1, 1, DType::kF32).ok());
  }
}

TEST(RowsTest, CheckRowsFindsEveryPlaceAndBitPattern) {
  for (size_t place = 0; place < 37; ++place) {
    for (uint16_t bits : {0x7c00, 0xfc00, 0x7c01, 0xffff}) {
      std::vector<uint16_t> rows(37, base::FloatToHalf(65504));
      rows[place] = bits;
      const auto* data = reinterpret_cast<const std::byte*>(rows.data());
      const absl::Status status = CheckRows({data, 2 * rows.size()}, 37, 1, DType::kF16);
      EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("row ", place, ",")));
    }
  }
  const float rows[] = {std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::denorm_min()};
  const auto* data = reinterpret_cast<const std::byte*>(rows);
  EXPECT_TRUE(CheckRows({data, sizeof(rows)}, 2, 1, DType::kF32).ok());
  EXPECT_TRUE(CheckRows({}, 0, 1, DType::kF32).ok());
}

}  // namespace
}  // namespace tessera::store
