#include "services/decode/engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "tests/services/decode/engine/engine_fixture.h"

namespace tessera::decode {
namespace {

using testing::CollectingSink;
using testing::ExpectedAnswer;
using testing::FakeKey;
using testing::FakeRecord;
using testing::FakeStore;
using testing::PictureRequest;
using testing::SmallEngine;
using testing::TextRequest;

// Of a fake engine whose token 0 ends nothing.
std::vector<int32_t> AnswerWithoutStop(const Request& request) {
  std::vector<uint64_t> tokens(request.ids.begin(), request.ids.end());
  std::vector<int32_t> answer;
  while (static_cast<int64_t>(answer.size()) < request.max_tokens) {
    answer.push_back(testing::NextFakeToken(tokens));
    tokens.push_back(static_cast<uint64_t>(answer.back()));
  }
  return answer;
}

TEST_F(EngineTest, ConcurrentRequestsAnswerAsEachDoesAlone) {
  Start(SmallEngine());
  std::vector<store::RecordPtr> records;
  for (uint8_t i = 0; i < 6; ++i) {
    records.push_back(FakeRecord(i, 1 + 5 * i));
    ASSERT_TRUE(store_.Put(records.back(), absl::ZeroDuration()).ok());
  }
  std::vector<SinkPtr> sinks;
  std::vector<std::vector<int32_t>> expected;
  for (int i = 0; i < 40; ++i) {
    std::vector<store::RecordPtr> pictures;
    for (int p = 0; p < i % 3; ++p) pictures.push_back(records[(i + p) % 6]);
    Request request = PictureRequest(pictures, 1 + i % 30, 1 + i % 40, i, nullptr);
    expected.push_back(ExpectedAnswer(request, pictures));
    sinks.push_back(Submit(std::move(request)));
  }
  for (int i = 0; i < 40; ++i) {
    sinks[i]->AwaitEnd();
    EXPECT_TRUE(sinks[i]->status().ok()) << sinks[i]->status();
    EXPECT_EQ(sinks[i]->ids(), expected[i]) << i;
    const Outcome outcome = sinks[i]->outcome();
    EXPECT_EQ(outcome.output_tokens, static_cast<int32_t>(expected[i].size()));
    EXPECT_EQ(outcome.finish, static_cast<int64_t>(expected[i].size()) < 1 + i % 40
                                  ? FinishReason::kStop
                                  : FinishReason::kLength);
    for (const PictureOutcome& picture : outcome.pictures) {
      EXPECT_EQ(picture.tier, RowTier::kLocal);
    }
  }
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  EXPECT_EQ(engine_->stats().blocks_used, 0);
}

TEST_F(EngineTest, AdmissionSaysTokensAndBlocks) {
  Start(SmallEngine());
  auto sink = std::make_shared<CollectingSink>();
  const auto accepted = SubmitTo(sink, TextRequest(10, 4, 1, nullptr));
  ASSERT_TRUE(accepted.ok());
  EXPECT_EQ(accepted->prompt_tokens, 10);
  EXPECT_EQ(accepted->blocks, 4);  // 13 places in blocks of 4
  EXPECT_EQ(sink->accepted().blocks, 4);
  sink->AwaitEnd();
}

TEST_F(EngineTest, WhatCanNeverFitIsRefusedWhileOthersGoOn) {
  Start(SmallEngine());
  auto refused = std::make_shared<CollectingSink>();
  const auto accepted = SubmitTo(refused, TextRequest(200, 1, 1, nullptr));
  EXPECT_EQ(base::ReasonOf(accepted.status()), "CONTEXT_TOO_LONG");
  const auto picture = SubmitTo(refused, PictureRequest({FakeRecord(1, 250)}, 2, 1, 1, nullptr));
  EXPECT_EQ(base::ReasonOf(picture.status()), "CONTEXT_TOO_LONG");
  SinkPtr sink = Submit(TextRequest(5, 3, 2, nullptr));
  sink->AwaitEnd();
  EXPECT_TRUE(sink->status().ok());
  EXPECT_FALSE(refused->ended());
}

TEST_F(EngineTest, ATokenThatTheModelDoesNotKnowIsRefused) {
  Start(SmallEngine());
  Request request = TextRequest(5, 3, 1, nullptr);
  request.ids[2] = SmallEngine().vocabulary;
  const auto accepted = SubmitTo(std::make_shared<CollectingSink>(), std::move(request));
  EXPECT_EQ(accepted.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(accepted.status()), "TOKEN_UNKNOWN");
}

TEST_F(EngineTest, AnAnswerIsCutWhereTheContextEnds) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  Start(options);
  SinkPtr sink = Submit(TextRequest(190, 4'000'000'000, 1, nullptr));
  sink->AwaitEnd();
  EXPECT_EQ(sink->ids().size(), 10u);
  EXPECT_EQ(sink->outcome().finish, FinishReason::kLength);
}

TEST_F(EngineTest, AFullEngineRefusesAtOnceWithARetryDelay) {
  EngineOptions options = SmallEngine();
  options.scheduler.max_sequences = 1;
  options.scheduler.max_waiting = 2;
  Close();
  Start(options, Gate());
  std::vector<SinkPtr> sinks;
  for (int i = 0; i < 3; ++i) sinks.push_back(Submit(TextRequest(3, 2, i, nullptr)));
  const auto refused = SubmitTo(std::make_shared<CollectingSink>(), TextRequest(3, 2, 9, nullptr));
  EXPECT_EQ(base::ReasonOf(refused.status()), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(refused.status()).has_value());
  Open();
  for (const SinkPtr& sink : sinks) sink->AwaitEnd();
}

TEST_F(EngineTest, ASlowFetchDelaysNobodyElse) {
  Start(SmallEngine());
  const store::RecordPtr slow = FakeRecord(1, 4);
  const store::RecordPtr fast = FakeRecord(2, 4);
  ASSERT_TRUE(store_.Put(slow, absl::ZeroDuration()).ok());
  ASSERT_TRUE(store_.Put(fast, absl::ZeroDuration()).ok());
  store_.Block(slow->key);
  SinkPtr waiting = Submit(PictureRequest({slow}, 3, 5, 1, nullptr));
  SinkPtr other = Submit(PictureRequest({fast}, 3, 5, 2, nullptr));
  SinkPtr text = Submit(TextRequest(9, 9, 3, nullptr));
  other->AwaitEnd();
  text->AwaitEnd();
  EXPECT_FALSE(waiting->ended());
  store_.Release();
  waiting->AwaitEnd();
  EXPECT_TRUE(waiting->status().ok());
  EXPECT_EQ(waiting->ids(), ExpectedAnswer(PictureRequest({slow}, 3, 5, 1, nullptr), {slow}));
}

TEST_F(EngineTest, MissingRowsAreAskedForAndReadAgain) {
  Start(SmallEngine());
  const store::RecordPtr record = FakeRecord(1, 4);
  SinkPtr sink = Submit(PictureRequest({record}, 3, 5, 1, nullptr));
  EXPECT_EQ(sink->AwaitNeedRows(), (std::vector<int32_t>{0}));
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  engine_->RowsReady(sink->accepted().id, {0});
  sink->AwaitEnd();
  EXPECT_TRUE(sink->status().ok()) << sink->status();
  EXPECT_EQ(sink->ids(), ExpectedAnswer(PictureRequest({record}, 3, 5, 1, nullptr), {record}));
  EXPECT_EQ(sink->outcome().pictures[0].tier, RowTier::kLocal);
}

TEST_F(EngineTest, ASinkThatHasEnoughEndsTheAnswerWell) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  Start(options);
  auto sink = std::make_shared<CollectingSink>();
  sink->answer_after = 3;
  ASSERT_TRUE(SubmitTo(sink, TextRequest(3, 50, 1, nullptr)).ok());
  sink->AwaitEnd();
  EXPECT_TRUE(sink->status().ok());
  EXPECT_EQ(sink->outcome().finish, FinishReason::kStop);
  EXPECT_EQ(sink->ids().size(), 3u);
}

// Liveness is asked of these two numbers: a step that never ends has published nothing.
TEST_F(EngineTest, AStepThatDoesNotEndIsWorkAndWaitingForRowsIsNone) {
  Start(SmallEngine(), Gate());
  EXPECT_FALSE(engine_->progress().has_work);
  SinkPtr rows = Submit(PictureRequest({FakeRecord(1, 4)}, 3, 9, 5, nullptr));
  rows->AwaitNeedRows();
  while (engine_->stats().outside == 0) std::this_thread::yield();
  EXPECT_FALSE(engine_->progress().has_work) << "nothing to compute";
  Close();
  SinkPtr held = Submit(TextRequest(3, 9, 1, nullptr));
  AwaitStep(1);
  EXPECT_TRUE(engine_->progress().has_work);
  EXPECT_EQ(engine_->progress().steps, 0);
  Open();
  held->AwaitEnd();
  while (engine_->progress().has_work) std::this_thread::yield();
  EXPECT_GT(engine_->progress().steps, 0);
  EXPECT_FALSE(engine_->Drain(absl::Now()));  // the one that waits for rows
}

TEST_F(EngineTest, AReaderThatNeverCatchesUpIsAbortedAndHoldsNobody) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  options.slow_client_timeout = absl::ZeroDuration();
  Start(options);
  auto slow = std::make_shared<CollectingSink>();
  slow->answer_after = 2;
  slow->answer = SinkAnswer::kPause;
  ASSERT_TRUE(SubmitTo(slow, TextRequest(3, 50, 1, nullptr)).ok());
  SinkPtr other = Submit(TextRequest(3, 50, 2, nullptr));
  slow->AwaitEnd();
  other->AwaitEnd();
  EXPECT_EQ(slow->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(slow->status()), "SLOW_CLIENT");
  EXPECT_EQ(other->ids().size(), 50u);
}

TEST_F(EngineTest, AReaderThatCatchesUpGetsTheWholeAnswer) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  options.slow_client_timeout = absl::InfiniteDuration();
  Start(options);
  auto slow = std::make_shared<CollectingSink>();
  slow->answer_after = 2;
  slow->answer = SinkAnswer::kPause;  // after each token from the second on
  const Request request = TextRequest(3, 20, 1, nullptr);
  const SequenceId id = SubmitTo(slow, request)->id;
  SinkPtr other = Submit(TextRequest(3, 50, 2, nullptr));
  other->AwaitEnd();
  EXPECT_FALSE(slow->ended());
  EXPECT_EQ(slow->ids().size(), 2u);
  for (size_t tokens = 3; tokens <= 20; ++tokens) {
    engine_->Resume(id);
    slow->AwaitTokens(tokens);
    EXPECT_EQ(slow->ids().size(), tokens);
  }
  slow->AwaitEnd();
  EXPECT_TRUE(slow->status().ok());
  EXPECT_EQ(slow->ids(), AnswerWithoutStop(request));
}

TEST_F(EngineTest, ACancelledRequestStopsWithinTwoSteps) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  close_at_ = 4;
  Start(options, Gate());
  SinkPtr sink = Submit(TextRequest(3, 150, 1, nullptr));
  AwaitStep(4);
  engine_->Cancel(sink->accepted().id, absl::CancelledError("the client went away"));
  Open();
  sink->AwaitEnd();
  EXPECT_EQ(sink->status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  base::MutexLock lock(mutex_);
  EXPECT_LE(steps_, 5);
  EXPECT_EQ(engine_->stats().blocks_used, 0);
}

TEST_F(EngineTest, WithOneSequenceRequestsEndInTheOrderOfTheirArrival) {
  EngineOptions options = SmallEngine();
  options.scheduler.max_sequences = 1;
  std::vector<int32_t> order;
  Close();
  Start(options, [this, &order](const BatchPlan& plan) {
    order.push_back(plan.ids[0]);
    return Gate()(plan);
  });
  std::vector<SinkPtr> sinks;
  for (int i = 0; i < 20; ++i) {
    Request request = TextRequest(1, 1, i, nullptr);
    request.ids[0] = 2 + i;
    sinks.push_back(Submit(std::move(request)));
  }
  Open();
  for (const SinkPtr& sink : sinks) sink->AwaitEnd();
  ASSERT_EQ(order.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[i], 2 + i);
}

TEST_F(EngineTest, DrainRefusesNewRequestsAndEndsTheOthers) {
  Start(SmallEngine());
  store_.Block(FakeKey(1));
  SinkPtr stuck = Submit(PictureRequest({FakeRecord(1, 2)}, 3, 5, 1, nullptr));
  SinkPtr missing = Submit(PictureRequest({FakeRecord(2, 2)}, 3, 5, 1, nullptr));
  missing->AwaitNeedRows();
  EXPECT_FALSE(engine_->Drain(absl::Now()));
  EXPECT_EQ(stuck->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(missing->status()), "DRAINING");
  const auto refused = SubmitTo(std::make_shared<CollectingSink>(), TextRequest(3, 2, 9, nullptr));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->Drain(absl::Now())) << "nothing is left";
  store_.Release();
}

TEST_F(EngineTest, ADyingEngineEndsWhatRuns) {
  EngineOptions options = SmallEngine();
  options.scheduler.stop_ids = {};
  Start(options);
  std::vector<SinkPtr> sinks;
  for (int i = 0; i < 6; ++i) sinks.push_back(Submit(TextRequest(3, 150, i, nullptr)));
  sinks.push_back(Submit(PictureRequest({FakeRecord(1, 2)}, 3, 5, 1, nullptr)));
  engine_.reset();
  for (const SinkPtr& sink : sinks) EXPECT_EQ(sink->ends(), 1);
}

TEST_F(EngineTest, CancellationsRacingWithEverythingEndEachRequestOnce) {
  Start(SmallEngine());
  for (uint8_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(store_.Put(FakeRecord(i, 1 + i), absl::ZeroDuration()).ok());
  }
  constexpr int kThreads = 4;
  constexpr int kRequests = 800;
  std::atomic<int> finished{0};
  std::atomic<int> cancelled{0};
  const auto client = [&](uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kRequests; ++i) {
      const uint8_t picture = static_cast<uint8_t>(random() % 5);  // 4 is in no tier
      Request request = random() % 2 == 0
                            ? TextRequest(1 + random() % 20, 1 + random() % 20, i, nullptr)
                            : PictureRequest({FakeRecord(picture, 1 + picture)}, 1 + random() % 20,
                                             1 + random() % 9, i, nullptr);
      auto sink = std::make_shared<CollectingSink>();
      const auto accepted = SubmitTo(sink, std::move(request));
      if (!accepted.ok()) continue;
      // Nobody makes the missing rows: those requests are always cancelled.
      if (picture != 4 && random() % 2 == 0) sink->AwaitTokens(random() % 4);
      if (random() % 3 != 0 || picture == 4) {
        engine_->Cancel(accepted->id, absl::CancelledError("gone"));
      }
      if (random() % 8 == 0) engine_->RowsReady(accepted->id, {0});
      sink->AwaitEnd();
      EXPECT_EQ(sink->ends(), 1);
      (sink->status().ok() ? finished : cancelled) += 1;
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < kThreads; ++t) threads.emplace_back(client, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.finished_stop + stats.finished_length, finished.load());
  EXPECT_EQ(stats.finished_abort, cancelled.load());
  EXPECT_GT(finished.load(), 100);
  EXPECT_GT(cancelled.load(), 100);
}

TEST_F(EngineTest, SamplingDoesNotDependOnBatchMates) {
  Start(SmallEngine());
  const auto sampled = [](int seed) {
    Request request = TextRequest(6, 30, 1, nullptr);
    request.sampling.temperature = 1.5f;
    request.sampling.top_p = 0.999f;
    request.sampling.seed = static_cast<uint64_t>(seed);
    return request;
  };
  std::vector<std::vector<int32_t>> alone;
  for (int seed = 0; seed < 4; ++seed) {
    SinkPtr sink = Submit(sampled(seed));
    sink->AwaitEnd();
    alone.push_back(sink->ids());
  }
  std::vector<SinkPtr> sinks;
  for (int seed = 0; seed < 4; ++seed) sinks.push_back(Submit(sampled(seed)));
  for (int seed = 0; seed < 4; ++seed) {
    sinks[seed]->AwaitEnd();
    EXPECT_EQ(sinks[seed]->ids(), alone[seed]);
  }
}

}  // namespace
}  // namespace tessera::decode
