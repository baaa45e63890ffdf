// The engine's loop under everything at once, against what each request answers alone.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/services/decode/engine/engine_loop_fixture.h"

namespace tessera::decode {
namespace {

using testing::AheadOf;
using testing::CollectingSink;
using testing::ExpectedAnswer;
using testing::FakeRecord;
using testing::PictureRequest;

#ifdef TESSERA_SANITIZED
constexpr uint32_t kSeeds = 30;
#else
constexpr uint32_t kSeeds = 1000;
#endif

class EngineRandomTest : public EngineLoopTest {
 protected:
  struct Asked {
    SequenceId id = 0;
    std::shared_ptr<CollectingSink> sink;
    std::vector<int32_t> expected;
    bool ahead = false;
    bool cancelled = false;
  };

  int Below(int n) { return static_cast<int>(random_() % n); }
  bool OneIn(int n) { return Below(n) == 0; }

  EngineOptions RandomEngine() {
    EngineOptions options = testing::SmallEngine();
    options.blocks = 12 + Below(30);
    options.prefix_cache_blocks = OneIn(3) ? Below(options.blocks) : options.blocks;
    options.scheduler.max_batch_tokens = 4 + Below(20);
    options.scheduler.max_sequences = 1 + Below(4);
    options.scheduler.max_waiting = 1000;
    options.scheduler.tenant_quantum = 1 + Below(64);
    options.scheduler.ahead_beside_tokens = Below(8);
    options.slow_client_timeout = absl::InfiniteDuration();
    return options;
  }

  void AskSomething() {
    std::vector<store::RecordPtr> pictures;
    for (int p = Below(3); p > 0; --p) pictures.push_back(records_[random_() % records_.size()]);
    Request request = PictureRequest(pictures, 1 + Below(10), 1 + Below(14), Below(3), nullptr);
    request.tenant = OneIn(2) ? "a" : "b";
    Asked asked;
    asked.sink = std::make_shared<CollectingSink>();
    asked.ahead = OneIn(6);
    if (asked.ahead) {
      request = AheadOf(std::move(request));
    } else {
      asked.expected = ExpectedAnswer(request, pictures);
      if (OneIn(3)) {
        asked.sink->answer_after = 1 + Below(6);
        asked.sink->answer = SinkAnswer::kPause;
      }
    }
    if (request.ids.size() + request.max_tokens > 4u * blocks_) return;
    SubmitTo(asked.sink, std::move(request));
    asked.id = last_id_;
    asked_.push_back(std::move(asked));
  }

  // Some records are gone now and then; somebody makes them again.
  void AnswerSome() {
    for (const FetchJob& job : std::exchange(jobs_, {})) {
      if (OneIn(3)) {
        jobs_.push_back(job);  // later
        continue;
      }
      std::vector<store::RecordPtr> found;
      bool all = true;
      for (const WantedRows& wanted : job.pictures) {
        const bool gone = OneIn(4) && lost_[job.id]++ == 0;
        all &= !gone;
        found.push_back(gone ? nullptr
                             : records_[static_cast<uint8_t>(wanted.record.key.bytes()[0])]);
      }
      Answer(job, std::move(found));
      if (!all) loop_->Handle(RowsExist{job.id, {0, 1, 2}});
    }
  }

  void CancelSome() {
    if (asked_.empty()) return;
    Asked& asked = asked_[random_() % asked_.size()];
    asked.cancelled |= !asked.sink->ended();
    loop_->Handle(CancelRequest{asked.id, absl::CancelledError("gone")});
  }

  void Check(const Asked& asked) {
    ASSERT_EQ(asked.sink->ends(), 1);
    if (asked.cancelled) {
      ASSERT_EQ(asked.sink->status().code(), absl::StatusCode::kCancelled);
      const std::vector<int32_t> ids = asked.sink->ids();
      ASSERT_LE(ids.size(), asked.expected.size());
      ASSERT_TRUE(std::equal(ids.begin(), ids.end(), asked.expected.begin()));
      return;
    }
    ASSERT_TRUE(asked.sink->status().ok()) << asked.sink->status();
    ASSERT_EQ(asked.sink->ids(), asked.expected);
  }

  std::mt19937 random_;
  int32_t blocks_ = 0;
  std::vector<store::RecordPtr> records_;
  std::vector<Asked> asked_;
  std::map<SequenceId, int> lost_;
};

TEST_F(EngineRandomTest, EveryRequestAnswersAsItDoesAloneWhateverElseHappens) {
  int64_t preemptions = 0;
  int64_t hits = 0;
  for (uint8_t i = 0; i < 4; ++i) records_.push_back(FakeRecord(i, 1 + 3 * i));
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    random_.seed(seed);
    const EngineOptions options = RandomEngine();
    blocks_ = options.blocks;
    Start(options);
    for (int operation = 0; operation < 200; ++operation) {
      const int what = Below(12);
      if (what < 2) AskSomething();
      if (what == 2) CancelSome();
      if (what == 3) AnswerSome();
      if (what == 4 && !asked_.empty()) {
        loop_->Handle(ResumeRequest{asked_[random_() % asked_.size()].id});
      }
      if (what > 4) loop_->Step();
    }
    const auto ended = [](const Asked& asked) { return asked.sink->ended(); };
    for (int turns = 0; !std::all_of(asked_.begin(), asked_.end(), ended); ++turns) {
      ASSERT_LT(turns, 5000) << "it stands still";
      AnswerSome();
      for (const Asked& asked : asked_) loop_->Handle(ResumeRequest{asked.id});
      loop_->Step();
    }
    for (const Asked& asked : asked_) ASSERT_NO_FATAL_FAILURE(Check(asked));
    const EngineStats stats = loop_->stats();
    ASSERT_EQ(stats.blocks_used, 0);
    preemptions += stats.preemptions;
    hits += stats.prefix_hits;
    asked_.clear();
    jobs_.clear();
    lost_.clear();
    loop_.reset();
  }
  EXPECT_GT(preemptions, kSeeds / 3);
  EXPECT_GT(hits, kSeeds);
}

}  // namespace
}  // namespace tessera::decode
