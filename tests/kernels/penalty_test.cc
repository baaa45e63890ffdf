#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/host/sampling.h"
#include "tests/kernels/lab.h"

// Bias and penalties: which logits a token is taken from, and that its log-probability is the
// model's own.
namespace tessera::kernels {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

// SamplingRow's comment, in double, one id after another.
std::vector<double> Adjusted(const Floats& logits, const SamplingRow& row) {
  std::vector<double> out(logits.begin(), logits.end());
  for (const LogitBias& entry : row.bias) out[entry.id] += double{entry.bias};
  for (const SeenToken& token : row.seen) {
    double& x = out[token.id];
    x = x > 0 ? x / double{row.repetition_penalty} : x * double{row.repetition_penalty};
    x -= double{row.frequency_penalty} * token.answer_count;
    x -= token.answer_count > 0 ? double{row.presence_penalty} : 0.0;
  }
  return out;
}

Floats AdjustedF32(const Floats& logits, const SamplingRow& row) {
  Floats out(logits.size());
  AdjustLogits(logits, row, absl::MakeSpan(out));
  return out;
}

TEST(AdjustLogitsTest, GivesTheValuesThatAHandComputes) {
  const Floats logits = {2, -1, 0.5f, 3, 0, 7};
  const std::vector<SeenToken> seen = {{0, 0}, {1, 2}, {3, 1}, {4, 3}};
  const std::vector<LogitBias> bias = {{1, -1}, {2, 100}, {3, 1}};
  SamplingRow row;
  row.repetition_penalty = 2;
  row.frequency_penalty = 0.25f;
  row.presence_penalty = 0.5f;
  row.seen = seen;
  row.bias = bias;
  // 2 / 2; (-1 - 1) * 2 - 2 * 0.25 - 0.5; 0.5 + 100; (3 + 1) / 2 - 0.25 - 0.5; 0 - 3 * 0.25 - 0.5.
  EXPECT_EQ(AdjustedF32(logits, row), (Floats{1, -5, 100.5f, 1.25f, -1.25f, 7}));
  row.bias = {};  // penalties alone: -1 * 2 - 1, 3 / 2 - 0.75
  EXPECT_EQ(AdjustedF32(logits, row), (Floats{1, -3, 0.5f, 0.75f, -1.25f, 7}));
  row.repetition_penalty = 0.5f;  // below 1: repetition is welcome
  EXPECT_EQ(AdjustedF32(logits, row), (Floats{4, -1.5f, 0.5f, 5.25f, -1.25f, 7}));
  row.seen = {};
  row.bias = bias;
  EXPECT_EQ(AdjustedF32(logits, row), (Floats{2, -2, 100.5f, 4, 0, 7}));
  // Negative penalties reward what the answer holds.
  row = SamplingRow();
  row.frequency_penalty = -1;
  row.presence_penalty = -0.5f;
  row.seen = seen;
  EXPECT_EQ(AdjustedF32(logits, row), (Floats{2, 1.5f, 0.5f, 4.5f, 3.5f, 7}));
}

TEST(AdjustLogitsTest, FiniteLogitsStayFinite) {
  const Floats logits = {kLargest, -kLargest, kLargest, -kLargest};
  const std::vector<SeenToken> seen = {{1, 1}, {2, 1}};
  const std::vector<LogitBias> bias = {{0, kLargest}, {3, -kLargest}};
  SamplingRow row;
  row.repetition_penalty = 3;
  row.seen = seen;
  row.bias = bias;
  const Floats out = AdjustedF32(logits, row);
  EXPECT_EQ(out[0], kLargest);
  EXPECT_EQ(out[1], -kLargest);
  EXPECT_EQ(out[3], -kLargest);
  row.repetition_penalty = 1e-30f;
  EXPECT_EQ(AdjustedF32(logits, row)[2], kLargest);
}

TEST(AdjustLogitsTest, ARowWithoutSettingsAdjustsNothing) {
  const std::vector<SeenToken> seen = {{0, 1}};
  const std::vector<LogitBias> bias = {{0, 1}};
  SamplingRow row;
  EXPECT_FALSE(AdjustsLogits(row));
  row.seen = seen;
  EXPECT_FALSE(AdjustsLogits(row));
  row.presence_penalty = 0.1f;
  EXPECT_TRUE(AdjustsLogits(row));
  row = SamplingRow();
  row.repetition_penalty = 1.5f;
  EXPECT_FALSE(AdjustsLogits(row));  // nothing seen
  row.bias = bias;
  EXPECT_TRUE(AdjustsLogits(row));
}

TEST(AdjustLogitsDeathTest, AnIdBeyondTheLimitIsOurBug) {
  const Floats logits = {1, 2};
  Floats out(2);
  for (const int32_t id : {-1, 2}) {
    const std::vector<SeenToken> seen = {{id, 1}};
    const std::vector<LogitBias> bias = {{id, 1}};
    SamplingRow row;
    row.bias = bias;
    EXPECT_DEATH(AdjustLogits(logits, row, absl::MakeSpan(out)), "entry.id");
    row = SamplingRow();
    row.presence_penalty = 1;
    row.seen = seen;
    EXPECT_DEATH(AdjustLogits(logits, row, absl::MakeSpan(out)), "token.id");
  }
}

// Rows with every mix of settings; owns the lists.
struct Rows {
  std::vector<SamplingRow> rows;
  std::vector<std::vector<SeenToken>> seen;
  std::vector<std::vector<LogitBias>> bias;
};

Rows ManyRows(int count, int32_t vocab) {
  Rows all;
  all.seen.resize(count);
  all.bias.resize(count);
  std::mt19937 bits(5);
  auto up_to = [&](uint32_t n) { return static_cast<int32_t>(bits() % (n + 1)); };
  for (int i = 0; i < count; ++i) {
    SamplingRow row;
    row.temperature = i % 2 == 0 ? 0.0f : 0.25f * static_cast<float>(1 + up_to(5));
    row.top_k = i % 3 == 1 ? 20 : 0;
    row.top_p = i % 5 == 1 ? 0.8f : 1.0f;
    row.seed = bits();
    row.token_index = static_cast<uint64_t>(i);
    row.repetition_penalty = i % 4 == 0 ? 1.0f : 0.8f + 0.1f * static_cast<float>(up_to(9));
    row.frequency_penalty = i % 3 == 0 ? 0.0f : 0.25f * static_cast<float>(up_to(8)) - 1.0f;
    row.presence_penalty = i % 5 == 0 ? 0.0f : 0.5f * static_cast<float>(up_to(4)) - 1.0f;
    for (int32_t id = up_to(9); id < vocab; id += 1 + up_to(9)) {
      all.seen[i].push_back({id, up_to(3)});
    }
    for (int32_t id = up_to(30); id < vocab; id += 1 + up_to(60)) {
      all.bias[i].push_back({id, static_cast<float>(up_to(8)) - 4.0f});
    }
    row.seen = all.seen[i];
    if (i % 7 != 0) row.bias = all.bias[i];
    all.rows.push_back(row);
  }
  return all;
}

class PenaltyTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<Sampled> Run(const Floats& logits, int64_t vocab,
                           const std::vector<SamplingRow>& rows, int32_t limit = 0) {
    Lab lab(GetParam());
    return RunSample(lab, logits, vocab, rows, limit);
  }
};

Floats RowOf(const Floats& all, int64_t i, int64_t cols) {
  return {all.begin() + i * cols, all.begin() + (i + 1) * cols};
}

TEST_P(PenaltyTest, GreedyTakesTheLowestIdOfTheLargestAdjustedLogit) {
  for (const int32_t vocab : {3, 16, 17, 255, 256, 257, 1000}) {
    Floats logits(vocab, -3.0f);
    logits[0] = 5;
    const std::vector<LogitBias> bias = {{vocab / 2, 9}, {vocab - 1, 9}, {0, -2}};
    SamplingRow row;
    row.bias = bias;
    EXPECT_EQ(Run(logits, vocab, {row})[0].id, vocab / 2) << vocab;
  }
  const std::vector<SeenToken> seen = {{1, 1}};
  SamplingRow row;
  row.repetition_penalty = 2;
  row.seen = seen;
  EXPECT_EQ(Run({1, 2, 0}, 3, {row})[0].id, 0);  // 2 / 2 is no more than the 1 of id 0
}

TEST_P(PenaltyTest, ATokenComesFromTheAdjustedLogitsAndItsLogProbabilityFromTheModels) {
  const int32_t vocab = 777;
  const Rows all = ManyRows(60, vocab);
  const Floats logits = Random(all.rows.size() * vocab, 8, 2);
  const std::vector<Sampled> actual = Run(logits, vocab, all.rows);
  int moved = 0;
  for (size_t i = 0; i < all.rows.size(); ++i) {
    const Floats own = RowOf(logits, i, vocab);
    SamplingRow plain = all.rows[i];
    plain.repetition_penalty = 1, plain.frequency_penalty = plain.presence_penalty = 0;
    plain.bias = {}, plain.seen = {};
    const std::vector<double> wide = Adjusted(own, all.rows[i]);
    const Floats adjusted(wide.begin(), wide.end());
    const Sampled model = Run(own, vocab, {plain})[0];
    EXPECT_EQ(actual[i].id, Run(adjusted, vocab, {plain})[0].id) << i;
    double total = 0;
    for (const float x : own) total += std::exp(double{x});
    EXPECT_NEAR(actual[i].logprob, double{own[actual[i].id]} - std::log(total),
                256 * kUnitRoundoff);
    for (int k = 0; k < 5; ++k) {
      EXPECT_EQ(actual[i].top_ids[k], model.top_ids[k]);
      EXPECT_EQ(actual[i].top_logprobs[k], model.top_logprobs[k]);
    }
    moved += actual[i].id != model.id ? 1 : 0;
  }
  EXPECT_GT(moved, 30);
}

TEST_P(PenaltyTest, EveryBackendChoosesTheSameIds) {
  const int32_t vocab = 1537;
  const Rows all = ManyRows(120, vocab);
  const Floats logits = Random(all.rows.size() * vocab, 9, 2);
  const std::vector<Sampled> actual = Run(logits, vocab, all.rows);
  Lab lab("reference");
  const std::vector<Sampled> expected = RunSample(lab, logits, vocab, all.rows);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i].id, expected[i].id) << i;
}

TEST_P(PenaltyTest, AloneAndInABatchOfEight) {
  const int32_t vocab = 333;
  const Rows all = ManyRows(48, vocab);
  const Floats logits = Random(all.rows.size() * vocab, 4, 2);
  for (size_t begin = 0; begin < all.rows.size(); begin += 8) {
    const Floats batch(logits.begin() + begin * vocab, logits.begin() + (begin + 8) * vocab);
    const std::vector<SamplingRow> rows(all.rows.begin() + begin, all.rows.begin() + begin + 8);
    const std::vector<Sampled> together = Run(batch, vocab, rows);
    for (size_t i = 0; i < 8; ++i) {
      const Sampled alone = Run(RowOf(batch, i, vocab), vocab, {rows[i]})[0];
      EXPECT_EQ(alone.id, together[i].id);
      EXPECT_EQ(alone.logprob, together[i].logprob);
      EXPECT_TRUE(std::equal(alone.top_ids, alone.top_ids + 5, together[i].top_ids));
    }
  }
}

TEST_P(PenaltyTest, ABiasCannotHideANanNorMakeAnInfinity) {
  const std::vector<LogitBias> bias = {{0, 100}, {1, -100}};
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingRow row;
    row.temperature = temperature;
    row.bias = bias;
    EXPECT_FALSE(Run({std::nanf(""), 0}, 2, {row})[0].finite);
    EXPECT_FALSE(Run({0, -INFINITY}, 2, {row})[0].finite);
    const Sampled out = Run({kLargest, -kLargest}, 2, {row})[0];
    EXPECT_TRUE(out.finite);
    EXPECT_EQ(out.id, 0);
  }
}

TEST_P(PenaltyTest, IdsBeyondTheLimitStayOut) {
  Floats logits = Random(40, 3);
  logits[35] = 50;
  const std::vector<LogitBias> bias = {{29, 20}};
  SamplingRow row;
  row.bias = bias;
  EXPECT_EQ(Run(logits, 40, {row}, 30)[0].id, 29);
}

INSTANTIATE_TEST_SUITE_P(Kernels, PenaltyTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
