#include "services/decode/engine/engine_loop.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/engine/engine_loop_fixture.h"
#include "tests/support/allocation_count.h"

namespace tessera::decode {
namespace {

using testing::AllocationCount;
using testing::CollectingSink;
using testing::ExpectedAnswer;
using testing::FakeRecord;
using testing::PictureRequest;
using testing::SmallEngine;
using testing::TextRequest;

TEST_F(EngineLoopTest, AWarmDecodeStepAllocatesNothing) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  testing::FakeDeviceOptions fake;
  fake.backend = "cpu";
  fake.deferred = false;
  Start(options, std::move(fake));
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(Submit(TextRequest(3 + i, 50, i, nullptr)));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(loop_->Step());
  const size_t before = AllocationCount();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(loop_->Step());
  EXPECT_EQ(AllocationCount(), before);
  EXPECT_GE(sinks[0]->ids().size(), 20u);
}

TEST_F(EngineLoopTest, ADelayInEachStageAppearsInExactlyItsTime) {
  Start(SmallEngine());
  const store::RecordPtr record = FakeRecord(1, 4);
  Request request = PictureRequest({record}, 3, 3, 5, nullptr);
  request.arrival = clock_.Now();
  clock_.Advance(absl::Seconds(1));  // before it reaches the engine: queue
  auto sink = Submit(std::move(request));
  clock_.Advance(absl::Seconds(10));  // fetch
  Answer(jobs_.at(0), {nullptr});
  clock_.Advance(absl::Seconds(100));  // somebody makes the rows
  loop_->Handle(RowsExist{1, {0}});
  clock_.Advance(absl::Seconds(1000));  // fetch
  Answer(jobs_.at(1), {record});
  clock_.Advance(absl::Seconds(20));  // queue
  while (loop_->Step()) {
  }
  ASSERT_TRUE(sink->ended());
  const Outcome outcome = sink->outcome();
  const auto generated = outcome.output_tokens;
  ASSERT_GE(generated, 2);
  EXPECT_EQ(outcome.queue, absl::Seconds(21));
  EXPECT_EQ(outcome.fetch, absl::Seconds(1010));
  EXPECT_EQ(outcome.prefill, absl::Seconds(3));
  EXPECT_EQ(outcome.generation, absl::Seconds(3) * (generated - 1));
  EXPECT_EQ(outcome.pictures[0].tier, RowTier::kLocal);
  EXPECT_EQ(outcome.pictures[0].bytes_moved, record->data.size());
}

TEST_F(EngineLoopTest, TheObserverIsToldOfEveryStepAndEveryQuestionsEnd) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  std::vector<StepReport> steps;
  std::vector<absl::StatusCode> ends;
  options.observer.stepped = [&](const StepReport& step) { steps.push_back(step); };
  options.observer.answered = [&](const absl::Status& status, const Outcome&) {
    ends.push_back(status.code());
  };
  Start(options);
  Submit(TextRequest(5, 3, 1, nullptr));
  ASSERT_TRUE(loop_->Step());  // its prompt
  Submit(TextRequest(4, 2, 2, nullptr));
  Request ahead = TextRequest(6, 0, 3, nullptr);
  ahead.priority = Priority::kAhead;
  Submit(std::move(ahead));
  while (loop_->Step()) {
  }
  Submit(TextRequest(5, 3, 4, nullptr));
  loop_->EndAll(absl::CancelledError("enough"));
  ASSERT_EQ(static_cast<int64_t>(steps.size()), loop_->stats().steps);
  EXPECT_EQ(steps[0].prompt_tokens, 5);
  EXPECT_EQ(steps[0].decode_tokens, 0);
  EXPECT_GE(steps[1].prompt_tokens, 4);  // beside which the first goes on
  EXPECT_EQ(steps[1].decode_tokens, 1);
  int64_t prompt_tokens = 0;
  for (const StepReport& step : steps) {
    EXPECT_EQ(step.duration, absl::Seconds(3));
    prompt_tokens += step.prompt_tokens;
  }
  EXPECT_EQ(prompt_tokens, loop_->stats().prompt_tokens);
  EXPECT_EQ(ends, (std::vector<absl::StatusCode>{absl::StatusCode::kOk, absl::StatusCode::kOk,
                                                 absl::StatusCode::kCancelled}));
}

TEST_F(EngineLoopTest, APrefillInChunksIsOnePrefill) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  Start(options);
  auto sink = Submit(TextRequest(40, 2, 5, nullptr));  // 16 + 16 + 8
  while (loop_->Step()) {
  }
  EXPECT_EQ(sink->outcome().prefill, absl::Seconds(9));
  EXPECT_EQ(sink->outcome().generation, absl::Seconds(3));
  EXPECT_EQ(sink->outcome().queue, absl::ZeroDuration());
  EXPECT_EQ(sink->outcome().kv_blocks_new, 11);
  EXPECT_EQ(loop_->stats().prompt_tokens, 40);
}

TEST_F(EngineLoopTest, CancellationWorksInEveryStageAndFreesTheBlocks) {
  Start(SmallEngine());
  auto fetching = Submit(PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr));
  auto decoding = Submit(TextRequest(4, 100, 1, nullptr));
  ASSERT_TRUE(loop_->Step());
  auto prefilling = Submit(TextRequest(40, 100, 2, nullptr));
  ASSERT_TRUE(loop_->Step());
  auto queued = Submit(TextRequest(100, 100, 3, nullptr));
  for (SequenceId id = 1; id <= 4; ++id) {
    loop_->Handle(CancelRequest{id, absl::CancelledError("gone")});
  }
  EXPECT_FALSE(loop_->Step());
  for (const auto& sink : {fetching, decoding, prefilling, queued}) {
    EXPECT_EQ(sink->ends(), 1);
    EXPECT_EQ(sink->status().code(), absl::StatusCode::kCancelled);
  }
  EXPECT_EQ(loop_->stats().blocks_used, 0);
  EXPECT_EQ(loop_->stats().steps, 2);
  EXPECT_EQ(loop_->stats().finished_abort, 4);
  EXPECT_EQ(ended_, 4);
  // What comes late finds nobody, and harms nobody.
  Answer(jobs_.at(0), {FakeRecord(1, 4)});
  loop_->Handle(RowsExist{1, {0}});
  loop_->Handle(CancelRequest{2, absl::CancelledError("gone")});
  EXPECT_FALSE(loop_->Step());
}

TEST_F(EngineLoopTest, DeadlinesNameTheStageTheyHit) {
  EngineOptions options = SmallEngine();
  options.scheduler.max_sequences = 2;
  options.scheduler.stop_ids = {};
  Start(options);
  const absl::Time deadline = clock_.Now() + absl::Seconds(5);
  const auto submit = [&](Request request) {
    request.deadline = deadline;
    return Submit(std::move(request));
  };
  auto decoding = submit(TextRequest(2, 100, 1, nullptr));
  auto prefilling = submit(TextRequest(60, 40, 2, nullptr));
  auto queued = submit(TextRequest(2, 100, 3, nullptr));
  auto fetching = submit(PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr));
  auto awaiting = submit(PictureRequest({FakeRecord(2, 4)}, 3, 9, 5, nullptr));
  Answer(jobs_.at(1), {nullptr});
  EXPECT_EQ(loop_->next_deadline(), deadline);
  EXPECT_TRUE(loop_->Step());
  EXPECT_TRUE(loop_->Step());
  EXPECT_FALSE(loop_->Step());
  EXPECT_EQ(base::ReasonOf(decoding->status()), "DEADLINE_IN_GENERATION");
  EXPECT_EQ(base::ReasonOf(prefilling->status()), "DEADLINE_IN_PREFILL");
  EXPECT_EQ(base::ReasonOf(queued->status()), "DEADLINE_IN_QUEUE");
  EXPECT_EQ(base::ReasonOf(fetching->status()), "DEADLINE_IN_FETCH");
  EXPECT_EQ(base::ReasonOf(awaiting->status()), "DEADLINE_IN_ROWS");
  EXPECT_EQ(decoding->ids().size(), 2u);
  EXPECT_EQ(loop_->next_deadline(), absl::InfiniteFuture());
}

TEST_F(EngineLoopTest, AFetchKnowsWhoseItIsAndWhenNobodyWaitsForIt) {
  Start(SmallEngine());
  Request request = PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr);
  request.name = {"id-1", "a trace"};
  request.deadline = clock_.Now() + absl::Seconds(5);
  auto cancelled = Submit(request);
  auto late = Submit(request);
  const ReadContext& asker = jobs_.at(0).asker;
  EXPECT_EQ(asker.name.request_id, "id-1");
  EXPECT_EQ(asker.name.traceparent, "a trace");
  EXPECT_EQ(asker.deadline, request.deadline);
  EXPECT_FALSE(asker.ended.stop_requested());
  loop_->Handle(CancelRequest{1, absl::CancelledError("gone")});
  EXPECT_TRUE(asker.ended.stop_requested());
  EXPECT_FALSE(jobs_.at(1).asker.ended.stop_requested());
  // Rows that were not read for want of time are not asked for.
  clock_.Advance(absl::Seconds(5));
  Answer(jobs_.at(1), {nullptr});
  EXPECT_TRUE(late->AwaitNeedRows().empty());
  EXPECT_EQ(base::ReasonOf(late->status()), "DEADLINE_IN_FETCH");
}

TEST_F(EngineLoopTest, BlocksOfARequestWithNonfiniteLogitsAreNobodyElses) {
  testing::FakeDeviceOptions fake;
  fake.poisoned_id = 33;
  EngineOptions options = SmallEngine();
  options.prefix_cache_blocks = options.blocks;
  Start(options, std::move(fake));
  Request request = TextRequest(40, 9, 2, nullptr);  // several chunks: the first are named early
  request.ids[0] = 33;
  auto bad = Submit(request);
  while (loop_->Step()) {
  }
  EXPECT_EQ(base::ReasonOf(bad->status()), "NONFINITE_LOGITS");
  auto again = Submit(request);
  while (loop_->Step()) {
  }
  EXPECT_EQ(base::ReasonOf(again->status()), "NONFINITE_LOGITS");
  EXPECT_EQ(again->outcome().cached_tokens, 0);
}

TEST_F(EngineLoopTest, NonfiniteLogitsEndTheirRequestOnly) {
  testing::FakeDeviceOptions fake;
  fake.poisoned_id = 33;
  Start(SmallEngine(), std::move(fake));
  auto poisoned = Submit(TextRequest(5, 9, 1, nullptr));
  Request request = TextRequest(5, 9, 2, nullptr);
  request.ids[0] = 33;
  auto bad = Submit(std::move(request));
  while (loop_->Step()) {
  }
  EXPECT_EQ(base::ReasonOf(bad->status()), "NONFINITE_LOGITS");
  EXPECT_EQ(bad->status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(bad->ids().empty());
  EXPECT_TRUE(poisoned->status().ok());
  EXPECT_EQ(poisoned->ids(), ExpectedAnswer(TextRequest(5, 9, 1, nullptr)));
  EXPECT_EQ(loop_->stats().nonfinite_logits, 1);
  EXPECT_EQ(loop_->stats().blocks_used, 0);
}

TEST_F(EngineLoopTest, AFailedStepEndsItsRequestsAndTheNextOnesRun) {
  bool fail = true;
  EngineOptions options = SmallEngine();
  options.scheduler.max_sequences = 1;
  testing::FakeDeviceOptions fake;
  fake.on_forward = [&fail](const BatchPlan&) {
    return std::exchange(fail, false) ? absl::ResourceExhaustedError("no workspace")
                                      : absl::OkStatus();
  };
  Start(options, std::move(fake));
  auto failed = Submit(TextRequest(5, 9, 1, nullptr));
  auto next = Submit(TextRequest(5, 9, 2, nullptr));
  while (loop_->Step()) {
  }
  EXPECT_EQ(failed->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(next->status().ok());
  EXPECT_EQ(next->ids(), ExpectedAnswer(TextRequest(5, 9, 2, nullptr)));
  EXPECT_TRUE(loop_->health().ok());
}

TEST_F(EngineLoopTest, ARecordOfAnotherShapeIsRefused) {
  Start(SmallEngine());
  auto rows = Submit(PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr));
  auto width = Submit(PictureRequest({FakeRecord(2, 4)}, 3, 9, 5, nullptr));
  Answer(jobs_.at(0), {FakeRecord(1, 5)});
  Answer(jobs_.at(1), {FakeRecord(2, 4, 8)});
  for (const auto& sink : {rows, width}) {
    EXPECT_EQ(sink->status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::ReasonOf(sink->status()), "ROWS_MISMATCH");
  }
}

TEST_F(EngineLoopTest, WhoWaitsForRowsIsCountedThoughNothingRuns) {
  Start(SmallEngine());
  Submit(PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr));
  EXPECT_FALSE(loop_->Step());
  EXPECT_EQ(loop_->stats().waiting, 1);
  EXPECT_EQ(loop_->stats().outside, 1) << "the engine has nothing to do for it";
  EXPECT_EQ(loop_->stats().running, 0);
}

TEST_F(EngineLoopTest, WorkAheadKeepsNoQuestionWaitingAndItsBlocksAreAsGoodAsFree) {
  Start(SmallEngine());
  Request ahead = TextRequest(40, 0, 3, nullptr);  // 16 + 16 + 8
  ahead.priority = Priority::kAhead;
  Submit(std::move(ahead));
  ASSERT_TRUE(loop_->Step());
  EXPECT_EQ(loop_->stats().ahead, 1);
  EXPECT_EQ(loop_->stats().waiting, 0);
  EXPECT_GT(loop_->stats().blocks_used, 0);
  EXPECT_EQ(loop_->stats().blocks_ahead, loop_->stats().blocks_used);
  while (loop_->Step()) {
  }
  EXPECT_EQ(loop_->stats().ahead, 0);
  EXPECT_EQ(loop_->stats().blocks_ahead, 0);
}

TEST_F(EngineLoopTest, RowsAreAskedForUntilAllAreThereButNotForEver) {
  Start(SmallEngine());
  const std::vector<store::RecordPtr> records = {FakeRecord(1, 4), FakeRecord(2, 3)};
  auto sink = Submit(PictureRequest(records, 3, 9, 5, nullptr));
  Answer(jobs_.at(0), {nullptr, nullptr});
  EXPECT_EQ(sink->AwaitNeedRows(), (std::vector<int32_t>{0, 1}));
  loop_->Handle(RowsExist{1, {1, 7, -3}});
  EXPECT_EQ(jobs_.size(), 1u) << "one is still awaited";
  loop_->Handle(RowsExist{1, {0}});
  ASSERT_EQ(jobs_.size(), 2u);
  Answer(jobs_[1], {records[0], nullptr});
  EXPECT_EQ(sink->AwaitNeedRows(), (std::vector<int32_t>{1}));
  loop_->Handle(RowsExist{1, {1}});
  ASSERT_EQ(jobs_.at(2).pictures.size(), 1u);
  EXPECT_EQ(jobs_[2].pictures[0].picture, 1);
  Answer(jobs_[2], {nullptr});
  loop_->Handle(RowsExist{1, {1}});
  Answer(jobs_.at(3), {nullptr});
  EXPECT_EQ(base::ReasonOf(sink->status()), "ROWS_MISSING");
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera::decode
