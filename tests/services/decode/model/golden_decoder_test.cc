#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/services/decode/model/paged_runner.h"
#include "tests/support/golden_case.h"

// The decoder alone against reference outputs: rows from the files, logits at every position.
namespace tessera::testing {
namespace {

// What the goldens' README allows a f32 path, in standard deviations of the golden logits, and from
// where on an exact path deserves a look.
constexpr double kLimitF32 = 1e-3;
constexpr double kSuspiciousF32 = 1e-4;
// Below this gap the reference itself is not sure (the goldens have no such step).
constexpr double kSureGapF32 = 0.05;
// Rows and keys in f16 (services/decode/model/README.md): measured, with room for other goldens.
constexpr double kLimitF16 = 0.02;

struct Difference {
  double logits = 0;  // largest, in standard deviations of the golden logits
  int wrong_ids = 0;  // at steps whose gap is at least `sure_gap`
};

// Largest difference between golden rows and the rows of `logits` that end at token `end`.
double Compare(const TensorView& golden, absl::Span<const float> logits, int64_t end) {
  const std::vector<float> expected = ToFloats(golden);
  const int64_t rows = golden.shape[0], vocab = golden.shape[1];
  return LargestDifference(expected, logits.subspan((end - rows) * vocab, rows * vocab));
}

double SpreadOf(const GoldenModel& model, const GoldenCase& golden) {
  const TensorView* logits = model.Find(golden, "logits");
  if (logits == nullptr) logits = model.Find(golden, "logits_tail");
  return StandardDeviation(ToFloats(*logits));
}

Difference CompareCase(const GoldenModel& model, const GoldenCase& golden, const Script& script,
                       absl::Span<const float> logits, double sure_gap) {
  Difference result;
  const int64_t total = static_cast<int64_t>(script.ids.size());
  const std::pair<const char*, int64_t> kTensors[] = {
      {"logits", script.prompt}, {"logits_tail", script.prompt}, {"decode_logits", total}};
  for (const auto& [what, end] : kTensors) {
    const TensorView* expected = model.Find(golden, what);
    if (expected == nullptr) continue;
    result.logits = std::max(result.logits, Compare(*expected, logits, end));
  }
  result.logits /= SpreadOf(model, golden);
  const size_t vocab = logits.size() / script.ids.size();
  for (size_t step = 0; step < golden.greedy_ids.size(); ++step) {
    const auto row = logits.subspan((script.prompt - 1 + step) * vocab, vocab);
    if (ArgMax(row) != golden.greedy_ids[step] && golden.top2_gaps[step] >= sure_gap) {
      ++result.wrong_ids;
    }
  }
  return result;
}

// Runs every case of every model by itself and returns the largest difference.
double RunAll(const std::string& device, DType dtype, double limit, double sure_gap,
              int64_t most_tokens = 1 << 20) {
  auto models = FindGoldenModels();
  if (!models.ok()) {
    ADD_FAILURE() << models.status();
    return 0;
  }
  double largest = 0;
  int ran = 0;
  for (const GoldenModel& model : *models) {
    PagedRunner runner(model.dir, {.device = device, .kv_dtype = dtype});
    double largest_here = 0;
    int ran_here = 0;
    for (const GoldenCase& golden : model.cases) {
      const std::optional<Script> script = ScriptOf(model, golden, dtype);
      if (!script.has_value()) continue;  // the file has no rows for this picture
      if (ran_here > 0 && static_cast<int64_t>(script->ids.size()) > most_tokens) continue;
      const auto logits = runner.Run({*script}, Alone(*script));
      const Difference found = CompareCase(model, golden, *script, logits[0], sure_gap);
      EXPECT_LE(found.logits, limit) << model.dir << " " << golden.id;
      EXPECT_EQ(found.wrong_ids, 0) << model.dir << " " << golden.id;
      largest_here = std::max(largest_here, found.logits);
      ++ran_here;
    }
    EXPECT_GT(ran_here, 0) << model.dir << ": no case that can be run";
    std::printf("%s %s on %s: %d of %zu cases, largest difference %.2g of the spread\n",
                model.dir.c_str(), std::string(Name(dtype)).c_str(), device.c_str(), ran_here,
                model.cases.size(), largest_here);
    largest = std::max(largest, largest_here);
    ran += ran_here;
  }
  std::printf("GoldenDecoder: %d cases ran on %s\n", ran, device.c_str());
  return largest;
}

class GoldenDecoder : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenDecoder, LogitsEqualTheReferenceInF32) {
  const double largest = RunAll(GetParam(), DType::kF32, kLimitF32, kSureGapF32);
  EXPECT_LE(largest, kSuspiciousF32) << "within the limit, but an exact path is nearer";
}

TEST_P(GoldenDecoder, F16RowsAndKeysChooseTheSameTokens) {
  RunAll(GetParam(), DType::kF16, kLimitF16, kF16TopTwoGap);
}

// Hidden states in the order of stages: embeddings, after each layer, after the final norm.
std::string HiddenName(int stage, int layers) {
  if (stage < 0) return "hidden.text.embed";
  return stage == layers ? "hidden.text.final_norm" : absl::StrCat("hidden.text.", stage);
}

TEST_P(GoldenDecoder, HiddenStatesEqualTheReference) {
  auto models = FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  int compared = 0;
  for (const GoldenModel& model : *models) {
    std::map<int, std::vector<float>> seen;
    PagedRunner* current = nullptr;
    PagedRunner::Options options = {.device = GetParam()};
    options.llama.tap = [&](int stage, kernels::DeviceView hidden) {
      seen[stage].resize(hidden.rows * hidden.cols);
      current->backend().Download(hidden, absl::MakeSpan(seen[stage]));
    };
    PagedRunner runner(model.dir, options);
    current = &runner;
    for (const GoldenCase& golden : model.cases) {
      if (model.Find(golden, "hidden.text.embed") == nullptr) continue;
      const std::optional<Script> script = ScriptOf(model, golden, DType::kF32);
      ASSERT_TRUE(script.has_value()) << model.dir << " " << golden.id;
      runner.Run({*script}, {{{0, script->prompt}}});
      EXPECT_EQ(seen.size(), static_cast<size_t>(runner.config().layers) + 2);
      for (const auto& [stage, values] : seen) {
        const std::string name = HiddenName(stage, runner.config().layers);
        const TensorView* expected = model.Find(golden, name);
        ASSERT_NE(expected, nullptr) << model.dir << " " << name;
        const std::vector<float> floats = ToFloats(*expected);
        EXPECT_LE(LargestDifference(floats, values), kLimitF32 * StandardDeviation(floats))
            << model.dir << " " << golden.id << " " << name;
        ++compared;
      }
    }
  }
  std::printf("GoldenDecoder: %d hidden states compared on %s\n", compared, GetParam());
}

// The same numbers when nothing happens before Synchronize: no CPU habit may creep in.
TEST(GoldenDecoderDeferred, LogitsEqualTheReferenceInF32) {
  RunAll("deferred", DType::kF32, kLimitF32, kSureGapF32, /*most_tokens=*/128);
}

INSTANTIATE_TEST_SUITE_P(Backends, GoldenDecoder, ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::testing
