// What the engine answers, and what it costs, where prompts begin alike.

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/engine/engine_loop_fixture.h"

namespace tessera::decode {
namespace {

using testing::AheadOf;
using testing::CollectingSink;
using testing::ExpectedAnswer;
using testing::FakeRecord;
using testing::PictureRequest;
using testing::SmallEngine;
using testing::TextRequest;

using Records = std::vector<store::RecordPtr>;

EngineOptions WithCache() {
  EngineOptions options = SmallEngine();
  options.prefix_cache_blocks = options.blocks;
  return options;
}

class EnginePrefixTest : public EngineLoopTest {
 protected:
  // A question on `picture` and, behind it, on others; `text` tells questions apart.
  static Request Question(const Records& pictures, uint64_t text, int64_t max_tokens = 6) {
    Request request = PictureRequest(pictures, 7, max_tokens, 3, nullptr);
    request.ids.back() = static_cast<int32_t>(2 + text);
    return request;
  }
};

TEST_F(EnginePrefixTest, ASecondQuestionOnOnePictureFetchesNothingAndIsRight) {
  Start(WithCache());
  const Records records = {FakeRecord(1, 9)};
  EXPECT_EQ(Ask(Question(records, 1), records)->ids(),
            ExpectedAnswer(Question(records, 1), records));
  const Request second = Question(records, 2);
  auto sink = Submit(second);
  EXPECT_TRUE(jobs_.empty());
  RunAll();
  EXPECT_EQ(sink->ids(), ExpectedAnswer(second, records));
  const Outcome outcome = sink->outcome();
  EXPECT_EQ(outcome.pictures[0].tier, RowTier::kPrefixKv);
  EXPECT_EQ(outcome.pictures[0].bytes_moved, 0u);
  EXPECT_EQ(outcome.fetch, absl::ZeroDuration());
  EXPECT_EQ(outcome.prompt_tokens, 16);
  EXPECT_EQ(outcome.cached_tokens, 15);
  EXPECT_EQ(outcome.kv_blocks_reused, 3);
  EXPECT_EQ(loop_->stats().prefix_hits, 15);
  EXPECT_EQ(loop_->stats().prefix_queries, 32);
  EXPECT_EQ(loop_->stats().blocks_used, 0);
  EXPECT_GT(loop_->stats().blocks_cached, 0);
}

TEST_F(EnginePrefixTest, TwentyPicturesUnderOneQuestionAreNeverMixed) {
  Start(WithCache());
  for (int round = 0; round < 2; ++round) {
    for (uint8_t picture = 0; picture < 20; ++picture) {
      const Records records = {FakeRecord(picture, 9)};
      const Request request = Question(records, 1);
      EXPECT_EQ(Ask(request, records)->ids(), ExpectedAnswer(request, records)) << int{picture};
      if (round == 0) {
        EXPECT_EQ(loop_->stats().prefix_hits, 0);
      }
    }
  }
}

TEST_F(EnginePrefixTest, PicturesThatRunTogetherAreNeverMixed) {
  Start(WithCache());
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  Records records;
  for (uint8_t picture = 0; picture < 20; ++picture) records.push_back(FakeRecord(picture, 5));
  for (int i = 0; i < 40; ++i) sinks.push_back(Submit(Question({records[i % 20]}, i % 3)));
  RunAll(records);
  for (int i = 0; i < 40; ++i) {
    const Request request = Question({records[i % 20]}, i % 3);
    EXPECT_EQ(sinks[i]->ids(), ExpectedAnswer(request, {records[i % 20]})) << i;
  }
}

TEST_F(EnginePrefixTest, ASecondPictureKeepsTheHitOfTheFirst) {
  Start(WithCache());
  const Records a = {FakeRecord(1, 11)};
  const Records both = {a[0], FakeRecord(2, 6)};
  Ask(Question(a, 1), a);
  auto sink = Submit(Question(both, 1));
  ASSERT_EQ(jobs_.size(), 1u);
  ASSERT_EQ(jobs_[0].pictures.size(), 1u);
  EXPECT_EQ(jobs_[0].pictures[0].picture, 1);
  RunAll(both);
  EXPECT_EQ(sink->ids(), ExpectedAnswer(Question(both, 1), both));
  EXPECT_EQ(sink->outcome().cached_tokens, 12);
  EXPECT_EQ(sink->outcome().pictures[0].tier, RowTier::kPrefixKv);
  EXPECT_EQ(sink->outcome().pictures[1].tier, RowTier::kLocal);
}

TEST_F(EnginePrefixTest, TenantsShareNothing) {
  Start(WithCache());
  const Records records = {FakeRecord(1, 9)};
  for (const char* tenant : {"a", "b"}) {
    Request request = Question(records, 1);
    request.tenant = tenant;
    auto sink = Ask(std::move(request), records);
    EXPECT_EQ(sink->ids(), ExpectedAnswer(Question(records, 1), records));
    EXPECT_EQ(sink->outcome().cached_tokens, 0);
    EXPECT_EQ(sink->outcome().pictures[0].tier, RowTier::kLocal);
  }
}

TEST_F(EnginePrefixTest, ASecondTurnComputesOnlyWhatIsNew) {
  EngineOptions options = WithCache();
  options.scheduler.stop_ids = {};
  Start(options);
  const Records records = {FakeRecord(1, 9)};
  Request first = Question(records, 1, 9);
  const std::vector<int32_t> answer = Ask(first, records)->ids();
  ASSERT_EQ(answer.size(), 9u);
  Request second = first;
  second.ids.insert(second.ids.end(), answer.begin(), answer.end());
  second.ids.push_back(9);
  ASSERT_EQ(second.ids.size(), 26u);
  const int64_t computed = loop_->stats().prompt_tokens;
  auto sink = Ask(second, {});
  EXPECT_EQ(sink->outcome().cached_tokens, 24);
  EXPECT_EQ(loop_->stats().prompt_tokens - computed, 2);
}

TEST_F(EnginePrefixTest, TheSamePromptOfTwoBlocksHasTheSameAnswerEveryTime) {
  Start(WithCache());
  const Request request = TextRequest(8, 6, 5, nullptr);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(request)->ids(), ExpectedAnswer(request));
  Request longer = request;
  longer.ids.push_back(7);
  auto sink = Ask(longer);
  EXPECT_EQ(sink->ids(), ExpectedAnswer(longer));
  EXPECT_EQ(sink->outcome().cached_tokens, 8);
}

// ------------------------------------------------------------------ preemption

// A pool for one and a half requests, three that run, two of them with pictures.
TEST_F(EnginePrefixTest, PreemptedRequestsAnswerAsTheyDoAloneAndOnce) {
  for (const int32_t cached : {0, 5, 12}) {
    EngineOptions options = WithCache();
    options.scheduler.stop_ids = {};
    options.blocks = 12;  // 48 places, and each request takes 31
    options.prefix_cache_blocks = cached;
    Start(options);
    const Records records = {FakeRecord(1, 9), FakeRecord(2, 7)};
    const std::vector<Request> requests = {PictureRequest({records[0]}, 7, 16, 1, nullptr),
                                           PictureRequest({records[1]}, 9, 16, 2, nullptr),
                                           TextRequest(12, 20, 3, nullptr)};
    std::vector<std::vector<int32_t>> alone;
    for (const Request& request : requests) alone.push_back(Ask(request, records)->ids());
    ASSERT_EQ(loop_->stats().preemptions, 0);
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (const Request& request : requests) sinks.push_back(Submit(request));
    RunAll(records);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(sinks[i]->ids(), alone[i]) << i;
    EXPECT_GT(loop_->stats().preemptions, 0);
    EXPECT_EQ(sinks[0]->outcome().preemptions, 0);
    EXPECT_EQ(loop_->stats().blocks_used, 0);
    loop_.reset();
  }
}

TEST_F(EnginePrefixTest, RowsAreAskedForAgainWhenPinnedBlocksWereGivenAway) {
  EngineOptions options = WithCache();
  options.scheduler.max_sequences = 1;
  options.scheduler.stop_ids = {};
  options.blocks = 8;
  options.prefix_cache_blocks = 8;
  Start(options);
  const Records records = {FakeRecord(1, 9)};
  Ask(Question(records, 1, 2), records);
  auto running = Submit(TextRequest(5, 27, 8, nullptr));
  ASSERT_TRUE(loop_->Step());
  const Request question = Question(records, 2, 3);
  auto waiting = Submit(question);
  EXPECT_TRUE(jobs_.empty()) << "its picture is in the cache, and pinned";
  while (!running->ended()) ASSERT_TRUE(loop_->Step());
  EXPECT_TRUE(loop_->Step());
  ASSERT_EQ(jobs_.size(), 1u) << "its blocks went to the one that ran";
  AnswerJobs({});
  EXPECT_EQ(waiting->AwaitNeedRows(), (std::vector<int32_t>{0}));
  loop_->Handle(RowsExist{waiting->ended() ? 0 : last_id_, {0}});
  RunAll(records);
  EXPECT_TRUE(waiting->status().ok()) << waiting->status();
  EXPECT_EQ(waiting->ids().size(), 3u);
  EXPECT_EQ(waiting->outcome().pictures[0].tier, RowTier::kLocal);
  EXPECT_EQ(waiting->outcome().cached_tokens, 0);
}

// ------------------------------------------------------------------ pause

TEST_F(EnginePrefixTest, AReaderThatIsSlowTooLongIsAbortedAndItsBlocksComeBack) {
  EngineOptions options = WithCache();
  options.scheduler.stop_ids = {};
  options.slow_client_timeout = absl::Seconds(10);
  Start(options);
  auto sink = std::make_shared<CollectingSink>();
  sink->answer_after = 2;
  sink->answer = SinkAnswer::kPause;
  SubmitTo(sink, TextRequest(5, 30, 1, nullptr));
  ASSERT_TRUE(loop_->Step());
  ASSERT_TRUE(loop_->Step());
  const absl::Time paused = clock_.Now();
  EXPECT_FALSE(loop_->Step()) << "paused";
  EXPECT_EQ(loop_->next_deadline(), paused + absl::Seconds(10));
  clock_.Advance(absl::Seconds(9));
  loop_->Handle(ResumeRequest{last_id_});
  ASSERT_TRUE(loop_->Step());
  EXPECT_EQ(sink->ids().size(), 3u);
  clock_.Advance(absl::Seconds(9));
  EXPECT_FALSE(loop_->Step());
  EXPECT_FALSE(sink->ended()) << "it has read something meanwhile";
  clock_.Advance(absl::Seconds(1));
  loop_->Step();
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(sink->status()), "SLOW_CLIENT");
  EXPECT_EQ(loop_->stats().blocks_used, 0);
  EXPECT_EQ(loop_->stats().finished_abort, 1);
  loop_->Handle(ResumeRequest{last_id_});  // late, and of nobody
}

TEST_F(EnginePrefixTest, APausedRequestThatGaveWayGoesOnWhereItWas) {
  EngineOptions options = WithCache();
  options.scheduler.stop_ids = {};
  options.blocks = 10;
  options.slow_client_timeout = absl::InfiniteDuration();
  Start(options);
  const Records records = {FakeRecord(1, 9)};
  Request request = Question(records, 1, 12);
  const std::vector<int32_t> alone = Ask(request, records)->ids();
  auto sink = std::make_shared<CollectingSink>();
  sink->answer_after = 3;
  sink->answer = SinkAnswer::kPause;
  SubmitTo(sink, request);
  const SequenceId id = last_id_;
  RunAll(records);
  EXPECT_EQ(sink->ids().size(), 3u);
  auto other = Ask(TextRequest(20, 20, 5, nullptr));
  EXPECT_EQ(other->ids().size(), 20u);
  EXPECT_GE(loop_->stats().preemptions, 1);
  while (!sink->ended()) {
    loop_->Handle(ResumeRequest{id});
    RunAll(records);
  }
  EXPECT_EQ(sink->ids(), alone);
}

// ------------------------------------------------------------------ ahead-work

TEST_F(EnginePrefixTest, AQuestionAfterAheadWorkComputesLittleAndSaysSo) {
  Start(WithCache());
  const Records records = {FakeRecord(1, 9)};
  Request ahead = AheadOf(Question(records, 1));
  ahead.ids.resize(12);
  auto done = Ask(std::move(ahead), records);
  EXPECT_EQ(done->outcome().finish, FinishReason::kLength);
  EXPECT_TRUE(done->ids().empty());
  auto sink = Ask(Question(records, 2));
  EXPECT_EQ(sink->ids(), ExpectedAnswer(Question(records, 2), records));
  EXPECT_EQ(sink->outcome().ahead_tokens, 12);
  EXPECT_EQ(sink->outcome().pictures[0].tier, RowTier::kPrefixKv);
  EXPECT_EQ(loop_->stats().ahead_used, 12);
  EXPECT_EQ(loop_->stats().ahead_wasted, 0);
}

TEST_F(EnginePrefixTest, AheadWorkWhoseRowsNobodyHasIsDropped) {
  Start(WithCache());
  Request ahead = AheadOf(Question({FakeRecord(1, 9)}, 1));
  ahead.ids.resize(12);
  auto sink = Submit(std::move(ahead));
  AnswerJobs({});
  EXPECT_TRUE(sink->ended());
  EXPECT_TRUE(sink->status().ok());
  EXPECT_EQ(sink->outcome().finish, FinishReason::kDropped);
  EXPECT_TRUE(sink->ids().empty());
}

TEST_F(EnginePrefixTest, CancellingAheadWorkEndsItInEveryStage) {
  Start(WithCache());
  Request fetching = AheadOf(PictureRequest({FakeRecord(1, 9)}, 7, 1, 1, nullptr));
  std::vector<std::shared_ptr<CollectingSink>> sinks = {
      Submit(std::move(fetching)), Submit(AheadOf(TextRequest(40, 1, 2, nullptr))),
      Submit(AheadOf(TextRequest(40, 1, 3, nullptr)))};
  auto question = Submit(TextRequest(3, 4, 4, nullptr));
  ASSERT_TRUE(loop_->Step());
  loop_->Handle(CancelAhead{absl::UnavailableError("draining")});
  for (const auto& sink : sinks) EXPECT_EQ(sink->status().code(), absl::StatusCode::kUnavailable);
  RunAll();
  EXPECT_TRUE(question->status().ok());
  EXPECT_EQ(loop_->stats().blocks_used, 0);
  EXPECT_EQ(loop_->stats().finished_abort, 0) << "ahead-work is no request";
}

// ------------------------------------------------------------------ failure

// The device dies in the step that puts somebody outside: all end, once.
TEST_F(EnginePrefixTest, ADeviceThatDiesWhileSomebodyIsPutOutsideEndsAll) {
  EngineOptions options = WithCache();
  options.blocks = 12;
  bool fail = false;
  testing::FakeDeviceOptions fake;
  fake.device_status = [&fail] { return fail ? absl::InternalError("dead") : absl::OkStatus(); };
  Start(options, std::move(fake));
  auto ahead = Submit(AheadOf(TextRequest(40, 1, 1, nullptr)));
  ASSERT_TRUE(loop_->Step());
  auto question = Submit(TextRequest(20, 9, 2, nullptr));
  fail = true;
  ASSERT_TRUE(loop_->Step());
  EXPECT_EQ(ahead->ends(), 1);
  EXPECT_EQ(question->ends(), 1);
  EXPECT_EQ(base::ReasonOf(question->status()), "DEVICE_FAILED");
  EXPECT_FALSE(loop_->health().ok());
  EXPECT_EQ(loop_->stats().blocks_used, 0);
}

}  // namespace
}  // namespace tessera::decode
