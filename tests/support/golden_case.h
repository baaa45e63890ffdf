#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/weights/weights.h"

// Model directories with reference outputs (tests/goldens/README.md), found when the test runs:
// those of $TESSERA_GOLDENS/models (default tests/goldens/models), and models/shelf-vqa.
namespace tessera::testing {

struct GoldenCase {
  std::string id;
  base::Json json;                  // the whole entry of cases.json: messages, position_ids, ...
  std::vector<std::string> images;  // file names in inputs/
  std::string prompt;
  std::vector<int32_t> input_ids;   // place holders expanded
  std::vector<int64_t> image_rows;  // rows per picture
  std::vector<int32_t> greedy_ids;
  std::string greedy_text;
  std::string finish_reason;     // "stop" or "length"
  std::vector<float> top2_gaps;  // per greedy step
};

struct GoldenModel {
  std::string name;        // of the folder
  std::string dir;         // the model directory; pictures in dir + "/inputs"
  std::string model_type;  // from config.json
  int32_t image_token_id = -1;
  std::vector<int32_t> eos_ids;
  std::vector<GoldenCase> cases;
  std::unique_ptr<weights::Weights> tensors;  // expected/tensors.safetensors

  // The tensor "<case id>.<what>", nullptr when the file has none.
  const TensorView* Find(const GoldenCase& golden, absl::string_view what) const;
};

// The models that are served today, each with at least one case. Model types that later work brings
// are left out (and printed). An error when there is nothing to run, a file cannot be read, or a
// model type is known to nobody.
absl::StatusOr<std::vector<GoldenModel>> FindGoldenModels();

// $TESSERA_GOLDENS, or tests/goldens.
std::string GoldensDir();

// Where f16 may decide between two tokens: the largest gap between the two best logits of the exact
// path at which another choice still counts as equal.
inline constexpr float kF16TopTwoGap = 0.2f;

// The one verdict on "equal text" for f16 paths: equal ids, or first different at a step where the
// solo run's top-2 gap is below kF16TopTwoGap. Empty when equal, else what differs.
std::string DifferenceF16(absl::Span<const int32_t> ids, absl::Span<const int32_t> solo_ids,
                          absl::Span<const float> solo_top2_gaps);

// Standard deviation of all elements.
double StandardDeviation(absl::Span<const float> values);
// Largest |a - b|; infinite when the sizes differ or a value is not finite.
double LargestDifference(absl::Span<const float> a, absl::Span<const float> b);

}  // namespace tessera::testing
