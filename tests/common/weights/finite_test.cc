#include "common/weights/finite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/base/error.h"

namespace tessera::weights {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Little-endian bits of elements at an odd address, as files may have them.
class Elements {
 public:
  Elements(DType dtype, int64_t count)
      : dtype_(dtype), count_(count), bytes_(1 + count * SizeOf(dtype)) {}
  void Set(int64_t index, uint32_t bits) {
    std::memcpy(bytes_.data() + 1 + index * SizeOf(dtype_), &bits, SizeOf(dtype_));
  }
  TensorView view() const { return {dtype_, {count_}, bytes_.data() + 1}; }

 private:
  DType dtype_;
  int64_t count_;
  std::vector<std::byte> bytes_;
};

struct Kind {
  DType dtype;
  std::vector<uint32_t> finite;     // the largest, the smallest, minus zero ...
  std::vector<uint32_t> nonfinite;  // infinities, NaN with the first and the last mantissa bit
};

std::vector<Kind> Kinds() {
  return {{DType::kF32,
           {0x7f7fffff, 0xff7fffff, 0x00000001, 0x807fffff, 0x80000000},
           {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff}},
          {DType::kF16,
           {0x7bff, 0xfbff, 0x0001, 0x83ff, 0x8000},
           {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff}},
          {DType::kBF16,
           {0x7f7f, 0xff7f, 0x0001, 0x807f, 0x8000},
           {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff}}};
}

TEST(FiniteTest, EveryFiniteNumberPasses) {
  for (const Kind& kind : Kinds()) {
    for (const int64_t count : {0, 1, 7, 2048, 5000}) {
      Elements elements(kind.dtype, count);
      for (int64_t i = 0; i < count; ++i) elements.Set(i, kind.finite[i % kind.finite.size()]);
      EXPECT_EQ(FirstNonfinite(elements.view()), std::nullopt) << Name(kind.dtype) << " " << count;
      EXPECT_TRUE(CheckFinite("w", elements.view()).ok());
    }
  }
}

TEST(FiniteTest, TheFirstNonfiniteElementIsFoundWhereverItIs) {
  for (const Kind& kind : Kinds()) {
    for (const uint32_t bits : kind.nonfinite) {
      for (const int64_t index : {0, 1, 2047, 2048, 4095, 4999}) {
        Elements elements(kind.dtype, 5000);
        for (int64_t i = 0; i < 5000; ++i) elements.Set(i, kind.finite[i % kind.finite.size()]);
        elements.Set(4999, bits);
        elements.Set(index, bits);
        EXPECT_EQ(FirstNonfinite(elements.view()), index) << Name(kind.dtype) << " " << bits;
      }
    }
  }
}

TEST(FiniteTest, ARefusalNamesTensorPlaceAndValue) {
  Elements elements(DType::kF16, 15);
  elements.Set(13, 0xfc00);
  TensorView view = elements.view();
  view.shape = {3, 5};
  const absl::Status status = CheckFinite("decoder.q\n", view);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "WEIGHTS_NONFINITE");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("\"decoder.q\\n\" F16[3, 5]"), HasSubstr("element [2, 3]"),
                    HasSubstr("byte 26"), HasSubstr("-inf")));
}

}  // namespace
}  // namespace tessera::weights
