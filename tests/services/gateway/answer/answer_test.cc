#include "services/gateway/answer/answer.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/services/gateway/answer/answer_fixture.h"

namespace tessera::gateway {
namespace {

TEST_F(AnswerTest, TextOnlyGoesStraightToDecode) {
  Ask({});
  ASSERT_EQ(decode_.calls.size(), 1u);
  decode_.calls[0]->Piece("Hel");
  decode_.calls[0]->Piece("lo");
  decode_.calls[0]->End(absl::OkStatus());
  EXPECT_EQ(sink_.texts, "Hello");
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_TRUE(sink_.status.ok());
}

TEST_F(AnswerTest, APieceMayBringLogProbabilitiesBeforeItsText) {
  Ask({});
  decode_.calls.at(0)->Piece("", 2);
  decode_.calls[0]->Piece("ab", 1);
  EXPECT_EQ(sink_.texts, "ab");
  EXPECT_EQ(sink_.logprobs, 3);
}

TEST_F(AnswerTest, CancellingWhileEncodingDropsTheWork) {
  const std::shared_ptr<Answer> answer = Ask({"a"});
  answer->Cancel();
  EXPECT_TRUE(vision_.calls.at(0)->cancelled);
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_TRUE(absl::IsCancelled(sink_.status));
}

TEST_F(AnswerTest, CancellingWhileDecodingStopsDecode) {
  const std::shared_ptr<Answer> answer = Ask({});
  decode_.calls.at(0)->Piece("x");
  answer->Cancel();
  EXPECT_TRUE(decode_.calls[0]->cancelled);
  EXPECT_EQ(sink_.ends, 1);
  answer->Cancel();
  EXPECT_EQ(sink_.ends, 1);
}

// gRPC cancels a call at its client's deadline, as its own clock has it.
TEST_F(AnswerTest, WhoWaitedUntilTheDeadlineWasLateRatherThanGone) {
  const std::shared_ptr<Answer> encoding = Ask({"a"});
  clock_.Advance(absl::Minutes(1) - absl::Milliseconds(100));
  encoding->Cancel();
  EXPECT_TRUE(vision_.calls.at(0)->cancelled);
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink_.status)) << sink_.status;
  EXPECT_EQ(base::FactsOf(sink_.status).at("stage"), "encode");
  const std::shared_ptr<Answer> decoding = Ask({});
  clock_.Advance(absl::Minutes(1));
  decoding->Cancel();
  EXPECT_TRUE(decode_.calls.at(0)->cancelled);
  EXPECT_TRUE(absl::IsDeadlineExceeded(sink_.status)) << sink_.status;
  EXPECT_EQ(base::ReasonOf(sink_.status), "DEADLINE");
  EXPECT_EQ(sink_.ends, 2);
}

TEST_F(AnswerTest, WhoGoesBeforeTheDeadlineIsGone) {
  const std::shared_ptr<Answer> answer = Ask({});
  clock_.Advance(absl::Seconds(59));
  answer->Cancel();
  EXPECT_TRUE(absl::IsCancelled(sink_.status)) << sink_.status;
}

TEST_F(AnswerTest, ACallThatIsMadeWhenTheClientHasGoneIsNotBegun) {
  struct LeftMeanwhile final : DecodeClient {
    std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                         const rpc::RequestContext& request,
                                         const Placement& placement,
                                         std::shared_ptr<DecodeEvents> events) override {
      std::static_pointer_cast<Answer>(events)->Cancel();
      return fake.Generate(std::move(start), request, placement, std::move(events));
    }
    std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                  const rpc::RequestContext& request, const std::string& affinity,
                                  PrefillDone done) override {
      return fake.Prefill(start, request, affinity, std::move(done));
    }
    testing::FakeDecodeClient fake;
  } decode;
  const auto answer = std::make_shared<Answer>(
      AnswerDeps{options_, resolver_, decode, clock_, metrics_, admission_, pace_, running_, 0},
      rpc::RequestContext{.request_id = {}, .trace = {}, .deadline = clock_.Now() + absl::Hours(1)},
      clock_.Now(), sink_);
  answer->Start(Question({}), "");
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_TRUE(absl::IsCancelled(sink_.status)) << sink_.status;
  EXPECT_FALSE(decode.fake.calls.at(0)->started);
  EXPECT_EQ(admission_.stats().tokens_admitted, 0);
}

TEST_F(AnswerTest, AllThatRunAreEndedTogetherAndSayWhy) {
  Ask({"a"});
  Ask({});
  Ask({});
  decode_.calls.at(0)->End(absl::OkStatus());
  EXPECT_EQ(sink_.ends, 1);
  running_.AbortAll(base::Error(absl::StatusCode::kUnavailable, "DRAINING", "the end"));
  EXPECT_TRUE(vision_.calls.at(0)->cancelled);
  EXPECT_TRUE(decode_.calls.at(1)->cancelled);
  EXPECT_EQ(sink_.ends, 3);
  EXPECT_EQ(base::ReasonOf(sink_.status), "DRAINING") << sink_.status;
  Ask({});
  EXPECT_FALSE(decode_.calls.at(2)->cancelled);
  EXPECT_EQ(sink_.ends, 3);
}

TEST_F(AnswerTest, AFullSinkHoldsDecodeUntilItIsResumed) {
  sink_.full = true;
  const std::shared_ptr<Answer> answer = Ask({});
  EXPECT_FALSE(decode_.calls.at(0)->Piece("x"));
  EXPECT_EQ(decode_.calls[0]->resumed, 0);
  answer->Resume();
  EXPECT_EQ(decode_.calls[0]->resumed, 1);
  sink_.full = false;
  EXPECT_TRUE(decode_.calls[0]->Piece("y"));
  EXPECT_EQ(sink_.ends, 0);
}

TEST_F(AnswerTest, AClientThatDoesNotReadIsGivenUp) {
  sink_.full = true;
  const std::shared_ptr<Answer> answer = Ask({});
  decode_.calls.at(0)->Piece("x");
  answer->GiveUpSlowClient();
  EXPECT_TRUE(decode_.calls[0]->cancelled);
  EXPECT_EQ(sink_.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(sink_.status), "SLOW_CLIENT");
}

TEST_F(AnswerTest, ADeadlineSaysWhereItWasReached) {
  Ask({"a"});
  vision_.calls.at(0)->Fail(absl::DeadlineExceededError("late"));
  EXPECT_EQ(base::FactsOf(sink_.status).at("stage"), "encode");
  EXPECT_EQ(base::ReasonOf(sink_.status), "DEADLINE");
  EXPECT_NE(sink_.status.message().find("in stage encode after"), absl::string_view::npos);
}

TEST_F(AnswerTest, ADeadlineWithinDecodeNamesDecodesStageOnce) {
  Ask({});
  clock_.Advance(absl::Seconds(3));
  decode_.calls.at(0)->End(base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE_IN_PREFILL",
                                       "the deadline passed in stage PREFILL after 3s"));
  EXPECT_EQ(base::FactsOf(sink_.status).at("stage"), "prefill");
  EXPECT_EQ(base::ReasonOf(sink_.status), "DEADLINE");
  EXPECT_NE(sink_.status.message().find("in stage prefill after 3s"), absl::string_view::npos);
}

TEST_F(AnswerTest, TimesAreMeasuredFromArrival) {
  Ask({"a"});
  clock_.Advance(absl::Seconds(3));
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED, v1::QUALITY_VERDICT_PASS, 3);
  clock_.Advance(absl::Seconds(2));
  decode_.calls.at(0)->Piece("x");
  clock_.Advance(absl::Seconds(4));
  v1::DecodeEnd end;
  end.mutable_stages()->set_prefill_seconds(2);
  end.mutable_stages()->set_generation_seconds(4);
  decode_.calls[0]->End(absl::OkStatus(), end);
  const v1::Receipt& receipt = sink_.response.receipt();
  EXPECT_EQ(receipt.stages().encode_seconds(), 3);
  EXPECT_EQ(receipt.stages().first_token_seconds(), 5);
  EXPECT_EQ(receipt.total_seconds(), 9);
  EXPECT_EQ(receipt.images(0).cache(), v1::CACHE_TIER_COMPUTED);
}

}  // namespace
}  // namespace tessera::gateway
