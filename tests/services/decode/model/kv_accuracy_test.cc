#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/services/decode/model/paged_runner.h"
#include "tests/services/decode/model/shelf_questions.h"
#include "tests/support/golden_case.h"

// What int8 keys and values cost: logits of every step of an answer against those of a f32 cache,
// both forced on the f32 answer.
namespace tessera::decode {
namespace {

using testing::GoldenCase;
using testing::GoldenModel;
using testing::PagedRunner;
using testing::Script;

// One question per picture of the evaluation set.
#ifdef TESSERA_SANITIZED
constexpr size_t kQuestions = 5;
#else
constexpr size_t kQuestions = 100;
#endif

constexpr double kLeastAgreement = 0.99;

struct Format {
  const char* name;
  DType dtype;
  bool zero_point;
};
constexpr Format kFormats[] = {{"f16", DType::kF16, false},
                               {"int8", DType::kI8, false},
                               {"int8 with zero points", DType::kI8, true}};

class Change {
 public:
  // Logits [steps, vocab] of both; `forced`: the ids that the steps were forced to.
  void Add(absl::Span<const float> exact, absl::Span<const float> other,
           absl::Span<const int32_t> forced) {
    ASSERT_EQ(exact.size(), other.size());
    const size_t vocab = exact.size() / forced.size();
    for (size_t i = 0; i < exact.size(); ++i) {
      const double difference = std::abs(double{exact[i]} - double{other[i]});
      total_ += difference;
      largest_ = std::max(largest_, difference);
    }
    logits_.insert(logits_.end(), exact.begin(), exact.end());
    for (size_t step = 0; step < forced.size(); ++step, ++steps_) {
      const int32_t best = testing::ArgMax(exact.subspan(step * vocab, vocab));
      own_ += best == forced[step];
      agreed_ += best == testing::ArgMax(other.subspan(step * vocab, vocab));
    }
  }

  double mean() const { return total_ / static_cast<double>(logits_.size()); }
  double spread() const { return testing::StandardDeviation(logits_); }
  double agreement() const { return static_cast<double>(agreed_) / steps_; }
  // The share of steps at which the f32 cache gives the forced answer.
  double own() const { return static_cast<double>(own_) / steps_; }

  void Print(const std::string& model, const char* format) const {
    std::printf(
        "%-36s %-22s %5d steps: logits change by %.2e on average, %.2e at most (spread "
        "%.2f); greedy agreement %.2f %%\n",
        model.c_str(), format, steps_, mean(), largest_, spread(), 100 * agreement());
  }

 private:
  double total_ = 0, largest_ = 0;
  int steps_ = 0, agreed_ = 0, own_ = 0;
  std::vector<float> logits_;
};

// The steps of the answers: what stands behind the prompt is forced.
std::vector<Change> Measure(const std::string& dir, const std::vector<Script>& scripts) {
  const auto make = [&dir](const Format& format) {
    return std::make_unique<PagedRunner>(dir,
                                         PagedRunner::Options{.device = "cpu",
                                                              .threads = 2,
                                                              .kv_dtype = format.dtype,
                                                              .kv_tokens = 1024,
                                                              .kv_zero_point = format.zero_point});
  };
  const auto exact = make({"f32", DType::kF32, false});
  std::vector<std::unique_ptr<PagedRunner>> others;
  for (const Format& format : kFormats) others.push_back(make(format));
  std::vector<Change> changes(others.size());
  for (Script script : scripts) {
    const auto forced = absl::MakeConstSpan(script.ids).subspan(script.prompt);
    const auto steps = [&](PagedRunner& runner) {
      std::vector<float> logits = runner.Run({script}, testing::AtOnce(script))[0];
      const size_t vocab = logits.size() / script.ids.size();
      logits.resize(logits.size() - vocab);  // behind the last forced token
      logits.erase(logits.begin(), logits.begin() + (script.prompt - 1) * vocab);
      return logits;
    };
    const std::vector<float> expected = steps(*exact);
    for (size_t f = 0; f < others.size(); ++f) {
      changes[f].Add(expected, steps(*others[f]), forced);
    }
  }
  for (size_t f = 0; f < others.size(); ++f) changes[f].Print(dir, kFormats[f].name);
  return changes;
}

TEST(KvAccuracy, OnTheGoldens) {
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  int measured = 0;
  for (const GoldenModel& model : *models) {
    if (model.dir.find("shelf-vqa") != std::string::npos) continue;  // below, more of it
    std::vector<Script> scripts;
    for (const GoldenCase& golden : model.cases) {
      std::optional<Script> script = testing::ScriptOf(model, golden, DType::kF32);
      if (!script.has_value() || golden.greedy_ids.empty()) continue;
      script->Append({golden.greedy_ids.back()});
      scripts.push_back(*std::move(script));
    }
    for (const Change& change : Measure(model.dir, scripts)) {
      EXPECT_EQ(change.own(), 1) << model.dir;  // the reference's answers are those of the f32 path
    }
    ++measured;
  }
  EXPECT_GT(measured, 0);
}

TEST(KvAccuracy, OnTheShelfQuestionsGreedyChoicesAgree) {
  std::vector<Script> scripts;
  for (auto& question : testing::ShelfQuestions(kQuestions)) {
    scripts.push_back(std::move(question.script));
  }
  for (const Change& change : Measure("models/shelf-vqa", scripts)) {
    EXPECT_GE(change.own(), kLeastAgreement);  // the answers are those of the f32 path
    EXPECT_GE(change.agreement(), kLeastAgreement);
  }
}

}  // namespace
}  // namespace tessera::decode
