// Ahead-work, prefix hits and slow stores through the engine's door.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/engine/engine_fixture.h"

namespace tessera::decode {
namespace {

using testing::AheadOf;
using testing::CollectingSink;
using testing::ExpectedAnswer;
using testing::FakeRecord;
using testing::PictureRequest;
using testing::SmallEngine;
using testing::TextRequest;

class EngineAheadTest : public EngineTest {
 protected:
  static EngineOptions WithCache() {
    EngineOptions options = SmallEngine();
    options.prefix_cache_blocks = options.blocks;
    return options;
  }
};

TEST_F(EngineAheadTest, ASecondQuestionOnAPictureReadsNothingFromTheStore) {
  std::atomic<int> gets{0};
  store_.on_get = [&gets] { ++gets; };
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  Start(WithCache());
  for (int i = 0; i < 5; ++i) {
    Request request = PictureRequest({record}, 7, 6, 1, nullptr);
    request.ids.back() = 2 + i;
    const std::vector<int32_t> expected = ExpectedAnswer(request, {record});
    SinkPtr sink = Submit(std::move(request));
    sink->AwaitEnd();
    EXPECT_EQ(sink->ids(), expected);
    EXPECT_EQ(sink->outcome().pictures[0].tier, i == 0 ? RowTier::kLocal : RowTier::kPrefixKv);
    EXPECT_EQ(gets.load(), 1);
  }
}

TEST_F(EngineAheadTest, AQuestionWhosePictureIsCachedPassesOneThatWaitsForASlowStore) {
  const store::RecordPtr known = FakeRecord(1, 9);
  const store::RecordPtr slow = FakeRecord(2, 9);
  ASSERT_TRUE(store_.Put(known, absl::ZeroDuration()).ok());
  Start(WithCache());
  Submit(PictureRequest({known}, 7, 6, 1, nullptr))->AwaitEnd();
  store_.Block(slow->key);
  store_.Block(known->key);
  SinkPtr waiting = Submit(PictureRequest({slow}, 7, 6, 1, nullptr));
  SinkPtr second = Submit(PictureRequest({known}, 7, 6, 1, nullptr));
  second->AwaitEnd();
  EXPECT_TRUE(second->status().ok());
  EXPECT_FALSE(waiting->ended());
  engine_->Cancel(waiting->accepted().id, absl::CancelledError("gone"));
  waiting->AwaitEnd();
  store_.Release();
}

TEST_F(EngineAheadTest, TooMuchAheadWorkIsRefusedAndQuestionsAreNot) {
  EngineOptions options = WithCache();
  options.max_ahead = 2;
  Close();
  Start(options, Gate());
  std::vector<SinkPtr> sinks;
  for (int i = 0; i < 2; ++i) sinks.push_back(Submit(AheadOf(TextRequest(8, 1, i, nullptr))));
  const auto refused =
      SubmitTo(std::make_shared<CollectingSink>(), AheadOf(TextRequest(8, 1, 7, nullptr)));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused.status()), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(refused.status()).has_value());
  sinks.push_back(Submit(TextRequest(8, 3, 9, nullptr)));
  Open();
  for (const SinkPtr& sink : sinks) sink->AwaitEnd();
  EXPECT_EQ(sinks[2]->ids(), ExpectedAnswer(TextRequest(8, 3, 9, nullptr)));
  Submit(AheadOf(TextRequest(8, 1, 7, nullptr)))->AwaitEnd();
}

TEST_F(EngineAheadTest, AheadWorkServesTheQuestionBehindIt) {
  const store::RecordPtr record = FakeRecord(1, 9);
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  Start(WithCache());
  const Request question = PictureRequest({record}, 7, 6, 1, nullptr);
  Request ahead = AheadOf(question);
  ahead.ids.resize(10);  // the picture and no more: its last rows are in a block that is not full
  SinkPtr done = Submit(std::move(ahead));
  done->AwaitEnd();
  EXPECT_TRUE(done->status().ok());
  EXPECT_EQ(done->outcome().finish, FinishReason::kLength);
  EXPECT_EQ(done->accepted().prompt_tokens, 10);
  SinkPtr sink = Submit(question);
  sink->AwaitEnd();
  EXPECT_EQ(sink->ids(), ExpectedAnswer(question, {record}));
  EXPECT_EQ(sink->outcome().ahead_tokens, 10);
  EXPECT_EQ(sink->outcome().pictures[0].tier, RowTier::kPrefixKv);
}

TEST_F(EngineAheadTest, DrainEndsAheadWorkAtOnceAndLetsQuestionsFinish) {
  EngineOptions options = WithCache();
  options.scheduler.stop_ids = {};
  close_at_ = 2;
  Start(options, Gate());
  SinkPtr question = Submit(TextRequest(3, 40, 1, nullptr));
  AwaitStep(2);
  store_.Block(testing::FakeKey(1));
  SinkPtr fetching = Submit(AheadOf(PictureRequest({FakeRecord(1, 9)}, 7, 1, 1, nullptr)));
  SinkPtr ahead = Submit(AheadOf(TextRequest(160, 1, 2, nullptr)));
  Open();
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
  EXPECT_TRUE(question->status().ok());
  EXPECT_EQ(question->ids().size(), 40u);
  EXPECT_EQ(base::ReasonOf(fetching->status()), "DRAINING");
  EXPECT_TRUE(ahead->ended());
  EXPECT_EQ(engine_->stats().blocks_used, 0);
  const auto refused =
      SubmitTo(std::make_shared<CollectingSink>(), AheadOf(TextRequest(8, 1, 7, nullptr)));
  EXPECT_EQ(base::ReasonOf(refused.status()), "DRAINING");
  store_.Release();
}

TEST_F(EngineAheadTest, PromptsWithRotaryFrequenciesOfTheirLengthShareWithTheirLengthOnly) {
  EngineOptions options = WithCache();
  options.rotary_shared_tokens = 20;
  Start(options);
  const auto cached = [&](int tokens) {
    Request request = TextRequest(60, 1, 1, nullptr);
    request.ids.resize(tokens);
    SinkPtr sink = Submit(std::move(request));
    sink->AwaitEnd();
    return sink->outcome().cached_tokens;
  };
  EXPECT_EQ(cached(14), 0);
  EXPECT_EQ(cached(20), 14);
  EXPECT_EQ(cached(21), 0);
  EXPECT_EQ(cached(22), 0);
  EXPECT_EQ(cached(21), 20);
  EXPECT_EQ(cached(17), 16);
}

}  // namespace
}  // namespace tessera::decode
