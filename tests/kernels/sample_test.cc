#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/philox.h"
#include "tests/kernels/lab.h"

namespace tessera::kernels {
namespace {

TEST(PhiloxTest, GivesTheKnownAnswersOfItsAuthors) {
  // kat_vectors of Random123, philox4x32 with 10 rounds.
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(Philox4x32({f, f, f, f}, {f, f}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class SampleTest : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<Sampled> Run(const Floats& logits, int64_t vocab, std::vector<SamplingRow> rows,
                           int32_t limit = 0) {
    Lab lab(GetParam());
    return RunSample(lab, logits, vocab, rows, limit);
  }
};

TEST_P(SampleTest, GreedyTakesTheLowestIdOfTheLargest) {
  for (const int64_t vocab : {1, 2, 5, 16, 17, 255, 256, 257, 640, 1000}) {
    Floats logits = Random(vocab, static_cast<uint32_t>(vocab));
    const float top = *std::max_element(logits.begin(), logits.end()) + 1;
    const int64_t first = vocab / 2;
    logits[first] = logits[vocab - 1] = top;
    EXPECT_EQ(Run(logits, vocab, {{}})[0].id, first) << vocab;
  }
}

TEST_P(SampleTest, ReportsTheFiveBestWithTheirLogProbabilities) {
  const int64_t vocab = 777;
  Floats logits = Random(vocab, 5, 3);
  logits[700] = logits[3] = 11;  // equals: the lower id first
  logits[500] = 12;
  const Sampled out = Run(logits, vocab, {{}})[0];
  std::vector<int32_t> order(vocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double total = 0;
  for (const float x : logits) total += std::exp(double{x});
  ASSERT_TRUE(out.finite);
  EXPECT_EQ(out.id, 500);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(out.top_ids[i], order[i]) << i;
    const double expected = double{logits[order[i]]} - std::log(total);
    EXPECT_NEAR(out.top_logprobs[i], expected, 256 * kUnitRoundoff) << i;
  }
  EXPECT_EQ(out.logprob, out.top_logprobs[0]);
}

TEST_P(SampleTest, FewerThanFiveIdsLeaveTheRestEmpty) {
  const Sampled out = Run({1, 2, 50, 60}, 4, {{}}, 2)[0];
  EXPECT_EQ(out.id, 1);
  EXPECT_EQ(out.top_ids[1], 0);
  EXPECT_EQ(out.top_ids[2], -1);
}

TEST_P(SampleTest, IdsBeyondTheLimitAreNeverChosenNorLookedAt) {
  Floats logits = Random(100, 1);
  std::fill(logits.begin() + 90, logits.end(), 50.0f);
  logits[95] = std::nanf("");
  std::vector<SamplingRow> rows = {{}, {.temperature = 5, .seed = 3}};
  Floats twice = logits;
  twice.insert(twice.end(), logits.begin(), logits.end());
  for (const Sampled& out : Run(twice, 100, rows, 90)) {
    EXPECT_TRUE(out.finite);
    EXPECT_LT(out.id, 90);
    EXPECT_GE(out.id, 0);
  }
}

TEST_P(SampleTest, NanOrInfinityIsToldAndHasNoId) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    for (const size_t at : {0, 15, 16, 299}) {
      Floats logits = Random(300, 1);
      logits[at] = bad;
      const Sampled out = Run(logits, 300, {{}})[0];
      EXPECT_FALSE(out.finite);
      EXPECT_EQ(out.id, -1);
      EXPECT_EQ(out.top_ids[0], -1);
    }
  }
}

TEST_P(SampleTest, DrawsFollowTheDistribution) {
  // Chi-square of 20000 draws over 8 ids: 24.3 is exceeded by chance once in a thousand seeds.
  const Floats logits = {0, 1, 2, -1, 0.5f, 1.5f, -2, 0};
  const int draws = 20000;
  std::vector<SamplingRow> rows;
  Floats all;
  for (int i = 0; i < draws; ++i) {
    rows.push_back({.temperature = 0.8f, .seed = 42, .token_index = static_cast<uint64_t>(i)});
    all.insert(all.end(), logits.begin(), logits.end());
  }
  std::vector<double> count(logits.size());
  for (const Sampled& out : Run(all, 8, rows)) count[out.id] += 1;
  double total = 0, chi = 0;
  for (const float x : logits) total += std::exp(double{x} / double{0.8f});
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = draws * std::exp(double{logits[i]} / double{0.8f}) / total;
    chi += (count[i] - expected) * (count[i] - expected) / expected;
  }
  EXPECT_LT(chi, 24.3);
}

// Ids that occur in 400 draws.
std::vector<int32_t> Support(const std::vector<Sampled>& draws) {
  std::vector<int32_t> ids;
  for (const Sampled& draw : draws) ids.push_back(draw.id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

TEST_P(SampleTest, FiltersLeaveExactlyTheIdsTheyShould) {
  // Probabilities 0.4, 0.3, 0.2, 0.1 at ids 2, 0, 3, 1.
  const Floats logits = {std::log(0.3f), std::log(0.1f), std::log(0.4f), std::log(0.2f)};
  struct Case {
    SamplingRow row;
    std::vector<int32_t> ids;
  };
  const Case cases[] = {
      {{.temperature = 1}, {0, 1, 2, 3}},
      {{.temperature = 1, .top_k = 2}, {0, 2}},
      {{.temperature = 1, .top_k = 100}, {0, 1, 2, 3}},
      {{.temperature = 1, .top_p = 0.6f}, {0, 2}},
      {{.temperature = 1, .top_p = 0.39f}, {2}},
      {{.temperature = 1, .top_p = 0.0f}, {2}},
      {{.temperature = 1, .min_p = 0.6f}, {0, 2}},
      {{.temperature = 1, .min_p = 1.0f}, {2}},
      // 0.4 / 0.9 = 0.44 after top-k: top-p sees what top-k left.
      {{.temperature = 1, .top_k = 3, .top_p = 0.43f}, {2}},
      {{.temperature = 1, .top_k = 3, .min_p = 0.49f}, {0, 2, 3}},
  };
  for (const Case& c : cases) {
    std::vector<SamplingRow> rows(400, c.row);
    Floats all;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].token_index = i;
      all.insert(all.end(), logits.begin(), logits.end());
    }
    EXPECT_EQ(Support(Run(all, 4, rows)), c.ids)
        << "k " << c.row.top_k << " p " << c.row.top_p << " min " << c.row.min_p;
  }
}

std::vector<SamplingRow> ManyRows() {
  std::vector<SamplingRow> rows;
  for (uint64_t i = 0; i < 200; ++i) {
    SamplingRow row;
    row.temperature = i % 5 == 0 ? 0.0f : 0.3f * static_cast<float>(i % 7 + 1);
    row.top_k = i % 3 == 0 ? static_cast<int32_t>(i) : 0;
    row.top_p = i % 4 == 0 ? 0.9f : 1.0f;
    row.min_p = i % 6 == 0 ? 0.05f : 0.0f;
    row.seed = i * i;
    row.token_index = i;
    rows.push_back(row);
  }
  return rows;
}

TEST_P(SampleTest, EveryBackendChoosesTheSameIds) {
  const int64_t vocab = 1537;
  const std::vector<SamplingRow> rows = ManyRows();
  const Floats logits = Random(rows.size() * vocab, 9, 2);
  const std::vector<Sampled> actual = Run(logits, vocab, rows);
  Lab lab("reference");
  const std::vector<Sampled> expected = RunSample(lab, logits, vocab, rows);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(actual[i].id, expected[i].id) << i;
    EXPECT_NEAR(actual[i].logprob, expected[i].logprob, 256 * kUnitRoundoff) << i;
    EXPECT_TRUE(std::equal(actual[i].top_ids, actual[i].top_ids + 5, expected[i].top_ids)) << i;
  }
}

TEST_P(SampleTest, ADrawDoesNotDependOnBatchMates) {
  const int64_t vocab = 333;
  const std::vector<SamplingRow> rows = ManyRows();
  const Floats logits = Random(rows.size() * vocab, 4, 2);
  const std::vector<Sampled> together = Run(logits, vocab, rows);
  for (size_t i = 0; i < rows.size(); i += 17) {
    const Floats one(logits.begin() + i * vocab, logits.begin() + (i + 1) * vocab);
    const Sampled alone = Run(one, vocab, {rows[i]})[0];
    EXPECT_EQ(alone.id, together[i].id);
    EXPECT_EQ(alone.logprob, together[i].logprob);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, SampleTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::kernels
