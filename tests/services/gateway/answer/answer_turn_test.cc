#include <gtest/gtest.h>

#include "common/base/error.h"
#include "services/gateway/answer/answer.h"
#include "tests/services/gateway/answer/answer_fixture.h"

namespace tessera::gateway {
namespace {

// Answers and their turns: admission by estimate, the ladder of deadlines.
class AnswerTurnTest : public AnswerTest {
 protected:
  // Ends what decode was asked last; its prompt took a millisecond a token, its answer 10 each.
  void Finish(v1::FinishReason reason = v1::FINISH_REASON_STOP) {
    v1::DecodeEnd end;
    end.set_finish_reason(reason);
    end.mutable_usage()->set_prompt_tokens(100);
    end.mutable_usage()->set_output_tokens(11);
    end.mutable_stages()->set_prefill_seconds(0.1);
    end.mutable_stages()->set_generation_seconds(0.1);
    decode_.calls.back()->Piece("x");
    decode_.calls.back()->End(absl::OkStatus(), end);
  }
  void LearnPace() {
    for (int i = 0; i < 8; ++i) {
      Ask({});
      Finish();
    }
  }
  std::shared_ptr<Answer> AskWithin(absl::Duration left, uint32_t max_tokens) {
    v1::GenerateRequest request = Question({});
    request.mutable_options()->set_max_tokens(max_tokens);
    return AskFor(request, left);
  }
};

TEST_F(AnswerTurnTest, AnAnswerWaitsForRoomBeforeAnythingIsDoneForIt) {
  admission_.SetTotal(400);
  Ask({});
  Ask({"picture"});
  EXPECT_EQ(decode_.calls.size(), 1u);
  EXPECT_TRUE(vision_.calls.empty());
  Finish();
  EXPECT_EQ(vision_.calls.size(), 1u);
}

TEST_F(AnswerTurnTest, TheWaitIsInTheReceiptsQueue) {
  admission_.SetTotal(300);
  Ask({});
  RecordingSink second;
  std::swap(sink_, second);
  const auto answer = Ask({});
  clock_.Advance(absl::Milliseconds(1500));
  decode_.calls.at(0)->End(absl::OkStatus());
  ASSERT_EQ(decode_.calls.size(), 2u);
  Finish();
  EXPECT_NEAR(sink_.response.receipt().stages().queue_seconds(), 1.5, 1e-6);
}

TEST_F(AnswerTurnTest, RowsAreEstimatedAsVisionHasThem) {
  ImageResolver counted(vision_, known_, clock_, "f", 500);
  EXPECT_EQ(counted.ExpectedRows({}), 500u);
  EXPECT_EQ(resolver_.ExpectedRows({}), 0u) << "nothing is known yet";
  Ask({"a"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(resolver_.ExpectedRows({}), 16u) << "as the largest so far";
  ParsedRequest parsed = *ParseRequest(Question({"a", "b"}), "", options_, clock_.Now());
  const WorkEstimate work = EstimateWork(parsed, resolver_, 0);
  EXPECT_EQ(work.rows, 32);
  EXPECT_EQ(work.text_tokens, 2 + 4);
  EXPECT_EQ(work.max_tokens, 256u);
  EXPECT_EQ(EstimateWork(parsed, resolver_, 100).max_tokens, 62u) << "the context has no more";
}

TEST_F(AnswerTurnTest, GoingAwayWhileWaitingEndsItAndLetsTheNextIn) {
  admission_.SetTotal(300);
  Ask({});
  RecordingSink first;
  std::swap(sink_, first);
  Ask({})->Cancel();
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_EQ(sink_.status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(admission_.stats().queued, 0);
}

TEST_F(AnswerTurnTest, AFullDecodeIsToldWithTheRateAtWhichItDrains) {
  for (uint64_t i = 0; i <= 10; ++i) {  // two a second, nine wait
    admission_.Report({.replicas = 1, .free_tokens = 1 << 20, .waiting = 9, .ended = i});
    clock_.Advance(absl::Milliseconds(500));
  }
  Ask({});
  decode_.calls.at(0)->End(base::WithRetry(
      base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "full"), absl::Seconds(1)));
  EXPECT_EQ(base::ReasonOf(sink_.status), "QUEUE_FULL");
  EXPECT_EQ(base::RetryOf(sink_.status), absl::Seconds(5));
}

TEST_F(AnswerTurnTest, AnAnswerThatWouldBeLateIsShortened) {
  LearnPace();
  AskWithin(absl::Milliseconds(516), 200);
  EXPECT_EQ(decode_.calls.back()->start.options().max_tokens(), 51u);
  Finish(v1::FINISH_REASON_LENGTH);
  ASSERT_EQ(sink_.response.receipt().degraded_size(), 1);
  EXPECT_EQ(sink_.response.receipt().degraded(0),
            "output: ended after 51 tokens instead of 200 for its deadline");
  EXPECT_NE(all_metrics_.Text().find("degraded_requests_total{model_name=\"m\",step=\"output\"} 1"),
            std::string::npos);
}

TEST_F(AnswerTurnTest, AnAnswerThatEndsByItselfWasNotChanged) {
  LearnPace();
  AskWithin(absl::Milliseconds(516), 200);
  Finish(v1::FINISH_REASON_STOP);
  EXPECT_EQ(sink_.response.receipt().degraded_size(), 0);
}

TEST_F(AnswerTurnTest, ABusyFirstChoiceIsLeftForTheDeadline) {
  options_.deadline_ladder = {LadderStep::kRedirect, LadderStep::kOutput, LadderStep::kRefuse};
  LearnPace();
  decode_.waits = {.first = absl::Seconds(2), .least = absl::ZeroDuration()};
  AskWithin(absl::Milliseconds(1016), 50);
  EXPECT_EQ(decode_.calls.back()->patience, absl::Milliseconds(500));
  decode_.calls.back()->events->OnRouted({"r2", "first choice r1 is too busy", true});
  Finish();
  ASSERT_EQ(sink_.response.receipt().degraded_size(), 1);
  EXPECT_EQ(sink_.response.receipt().degraded(0), "redirect: first choice r1 is too busy");
}

TEST_F(AnswerTurnTest, WhatCannotBeInTimeIsRefusedAtOnceUnlessTheLadderHasNoSuchStep) {
  LearnPace();
  const size_t asked = decode_.calls.size();
  AskWithin(absl::Milliseconds(10), 200);
  EXPECT_EQ(decode_.calls.size(), asked);
  EXPECT_EQ(sink_.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(base::ReasonOf(sink_.status), "DEADLINE");
  EXPECT_EQ(base::FactsOf(sink_.status)["stage"], "decode");
  options_.deadline_ladder = {LadderStep::kOutput};
  AskWithin(absl::Milliseconds(50), 200);
  EXPECT_EQ(decode_.calls.size(), asked + 1);
  EXPECT_EQ(decode_.calls.back()->start.options().max_tokens(), 16u);
}

TEST_F(AnswerTurnTest, APromptThatIsTooLongIsDecodesToRefuseAndBlocksNobody) {
  context_tokens_ = 1000;
  LearnPace();
  v1::GenerateRequest request = Question({});
  request.mutable_messages(0)->mutable_parts(0)->set_text(std::string(1 << 20, 'x'));
  const size_t asked = decode_.calls.size();
  AskFor(request, absl::Seconds(1));
  EXPECT_EQ(decode_.calls.size(), asked + 1);
  EXPECT_EQ(admission_.stats().tokens_admitted, 1000);
}

TEST_F(AnswerTurnTest, NothingIsChangedBeforeThePaceIsKnown) {
  AskWithin(absl::Milliseconds(1), 200);
  EXPECT_EQ(decode_.calls.back()->start.options().max_tokens(), 200u);
}

}  // namespace
}  // namespace tessera::gateway
