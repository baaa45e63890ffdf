// Every verdict of goldens/weights_bad: what is refused is refused with path and tensor or offset,
// and what is accepted has the listed tensors and values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/half.h"
#include "common/base/json.h"
#include "common/weights/weights.h"

namespace tessera::weights {
namespace {

std::string GoldensDir() {
  const char* dir = std::getenv("TESSERA_GOLDENS");
  return dir != nullptr ? dir : "tests/goldens";
}

template <typename T>
float Load(const std::byte* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return static_cast<float>(value);
}

// 4 exponent bits with bias 7, 3 mantissa bits, no infinity.
float Float8E4M3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int mantissa = bits & 7;
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(1.0f + static_cast<float>(mantissa) / 8, exponent - 7);
  return bits & 0x80 ? -magnitude : magnitude;
}

float ValueAt(const TensorView& view, size_t i) {
  switch (view.dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return ToFloats(view)[i];
    case DType::kI8:
      return Load<int8_t>(view.data, i);
    case DType::kU8:
      return Load<uint8_t>(view.data, i);
    case DType::kI32:
      return Load<int32_t>(view.data, i);
    case DType::kI64:
      return Load<int64_t>(view.data, i);
    case DType::kF64:
      return Load<double>(view.data, i);
    case DType::kF8E4M3:
      return Float8E4M3(static_cast<uint8_t>(view.data[i]));
    default:
      ADD_FAILURE() << "no reader for " << Name(view.dtype);
      return 0;
  }
}

void ExpectTensors(const Weights& weights, const base::Json& tensors) {
  EXPECT_EQ(weights.names().size(), tensors.size());
  for (const auto& [name, golden] : tensors.items()) {
    SCOPED_TRACE(name);
    const TensorView* view = weights.Find(name);
    ASSERT_NE(view, nullptr);
    EXPECT_EQ(Name(view->dtype), golden["dtype"].get<std::string>());
    const auto shape = golden["shape"].get<std::vector<int64_t>>();
    EXPECT_EQ(view->shape, Shape(shape.begin(), shape.end()));
    const auto values = golden["values"].get<std::vector<double>>();
    ASSERT_EQ(static_cast<size_t>(NumElements(view->shape)), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(ValueAt(*view, i), static_cast<float>(values[i])) << "element " << i;
    }
  }
}

void ExpectRefusal(const absl::Status& status, const std::string& path, const std::string& file) {
  ASSERT_FALSE(status.ok()) << "accepted";
  EXPECT_FALSE(base::ReasonOf(status).empty()) << status;
  const std::string message(status.message());
  EXPECT_TRUE(absl::StartsWith(message, path)) << message;
  EXPECT_TRUE(absl::StrContains(message, "tensor \"") || absl::StrContains(message, "offset ") ||
              absl::StrContains(message, "at byte ") ||
              absl::StrContains(message, "__metadata__") ||
              absl::StrContains(message, "weight_map"))
      << "names neither a tensor nor an offset: " << message;
  if (absl::StrContains(file, "lfs_pointer")) {
    EXPECT_THAT(message, ::testing::HasSubstr("Git LFS"));
  }
}

TEST(GoldenWeights, EveryVerdictHolds) {
  const std::string folder = absl::StrCat(GoldensDir(), "/weights_bad/");
  absl::StatusOr<base::Json> verdicts = base::ReadJsonFile(absl::StrCat(folder, "verdicts.json"));
  ASSERT_TRUE(verdicts.ok()) << verdicts.status();
  int ran = 0;
  for (const base::Json& golden : *verdicts) {
    const auto file = golden["file"].get<std::string>();
    const auto verdict = golden["verdict"].get<std::string>();
    SCOPED_TRACE(file);
    const std::string path = absl::StrCat(folder, file);
    auto weights =
        absl::EndsWith(file, "index.json") ? Weights::OpenIndex(path) : Weights::OpenFile(path);
    ASSERT_TRUE(verdict == "accept" || verdict == "reject") << "unknown verdict " << verdict;
    if (verdict == "reject") {
      ExpectRefusal(weights.status(), path, file);
    } else if (!weights.ok()) {
      ADD_FAILURE() << weights.status();
    } else if (golden.contains("tensors")) {
      ExpectTensors(**weights, golden["tensors"]);
    }
    ++ran;
  }
  std::printf("GoldenWeights: %d cases ran\n", ran);
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace tessera::weights
