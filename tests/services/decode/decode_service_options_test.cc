// Log-probabilities, penalties and bias through the wire. The fake model gives the token it means a
// logit of 10 and all others 0; the tokens used here occur in no prompt.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/services/decode/decode_service_fixture.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;

constexpr uint32_t kOne = 40;
constexpr uint32_t kOther = 41;

class DecodeOptionsOnTheWireTest : public DecodeServiceTest {
 protected:
  static v1::DecodeStart TellingStart(uint32_t top, uint32_t max_tokens) {
    v1::DecodeStart start = TextStart("Recite the alphabet.", max_tokens);
    start.mutable_options()->set_top_logprobs(top);
    return start;
  }
  static std::vector<int32_t> Chosen(const Answer& answer) {
    std::vector<int32_t> ids;
    for (const auto& token : answer.logprobs)
      ids.push_back(static_cast<int32_t>(token.chosen().id()));
    return ids;
  }
  std::vector<int32_t> AskForIds(const v1::DecodeStart& start) {
    const Answer answer = Ask(start);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    return Chosen(answer);
  }
  static void Bias(v1::DecodeStart& start, uint32_t id, float bias) {
    (*start.mutable_options()->mutable_logit_bias())[id] = bias;
  }
};

TEST_F(DecodeOptionsOnTheWireTest, EachTokenIsToldWithItsLikeliestRivals) {
  Start({.stops = false});
  const double meant = -std::log1p((kVocabulary - 1) * std::exp(-10.0));
  for (const uint32_t top : {0u, 3u, 5u}) {
    const v1::DecodeStart start = TellingStart(top, 60);
    const Answer answer = Ask(start);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    ASSERT_EQ(answer.logprobs.size(), 60u);
    std::string text;
    for (const v1::TokenLogprob& token : answer.logprobs) {
      EXPECT_NEAR(token.chosen().logprob(), meant, 1e-5);
      EXPECT_EQ(token.chosen().token(), tokenizer_->BytesOf(token.chosen().id()));
      if (!tokenizer_->IsSpecial(token.chosen().id())) text += token.chosen().token();
      ASSERT_EQ(token.top_size(), static_cast<int>(top));
      std::set<uint32_t> ids;
      double sum = 0;
      for (int i = 0; i < token.top_size(); ++i) {
        ids.insert(token.top(i).id());
        sum += std::exp(token.top(i).logprob());
        EXPECT_LE(token.top(i).logprob(), token.top(std::max(i - 1, 0)).logprob());
      }
      EXPECT_EQ(ids.size(), top);
      EXPECT_LE(sum, 1 + 1e-5);
      EXPECT_TRUE(top == 0 || token.top(0).id() == token.chosen().id());
    }
    EXPECT_EQ(text, answer.text);
  }
}

TEST_F(DecodeOptionsOnTheWireTest, TheTokenThatEndsAnAnswerIsNotTold) {
  Start();
  const v1::DecodeStart start = TellingStart(0, 200);
  const std::vector<int32_t> expected = ExpectedIds(start);
  ASSERT_LT(expected.size(), 200u);
  const Answer answer = Ask(start);
  EXPECT_EQ(Chosen(answer), expected);
  EXPECT_EQ(answer.end.usage().output_tokens(), expected.size());
}

TEST_F(DecodeOptionsOnTheWireTest, NothingIsToldUnasked) {
  Start();
  const Answer answer = Ask(TextStart("Recite the alphabet."));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_TRUE(answer.logprobs.empty());
}

TEST_F(DecodeOptionsOnTheWireTest, ABiasForcesATokenAndTheModelsOwnProbabilityIsTold) {
  Start();
  v1::DecodeStart start = TellingStart(1, 5);
  Bias(start, kOne, 100);
  const Answer answer = Ask(start);
  EXPECT_EQ(Chosen(answer), std::vector<int32_t>(5, kOne));
  EXPECT_EQ(answer.text, tokenizer_->Decode(std::vector<int32_t>(5, kOne), true));
  EXPECT_LT(answer.logprobs[0].chosen().logprob(), -9);
  EXPECT_NE(answer.logprobs[0].top(0).id(), kOne);
}

TEST_F(DecodeOptionsOnTheWireTest, PenaltiesCountWhatTheAnswerHolds) {
  Start();
  v1::DecodeStart start = TellingStart(0, 4);
  Bias(start, kOne, 15);
  Bias(start, kOther, 14.5f);
  EXPECT_THAT(AskForIds(start), ElementsAre(kOne, kOne, kOne, kOne));
  v1::DecodeStart frequency = start;
  frequency.mutable_options()->set_frequency_penalty(1);  // 15 14.5, 14 14.5, 14 13.5, 13 13.5
  EXPECT_THAT(AskForIds(frequency), ElementsAre(kOne, kOther, kOne, kOther));
  v1::DecodeStart presence = start;
  presence.mutable_options()->set_presence_penalty(1);  // 15 14.5, 14 14.5, 14 13.5, 14 13.5
  EXPECT_THAT(AskForIds(presence), ElementsAre(kOne, kOther, kOne, kOne));
  v1::DecodeStart repetition = start;
  repetition.mutable_options()->set_max_tokens(2);
  repetition.mutable_options()->set_repetition_penalty(2);  // 15 14.5, 7.5 14.5
  EXPECT_THAT(AskForIds(repetition), ElementsAre(kOne, kOther));
}

}  // namespace
}  // namespace tessera::decode
