#include "tools/report/receipt_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ReceiptTextTest, WorkAheadAndPreemptionsAreShownWhenThereWereAny) {
  v1::GenerateResponse response;
  response.mutable_usage()->set_prompt_tokens(280);
  response.mutable_usage()->set_image_tokens(256);
  response.mutable_usage()->set_cached_tokens(270);
  EXPECT_THAT(ReceiptTable(response), HasSubstr("(text 24, image 256, cached 270)\n"));
  EXPECT_THAT(ReceiptTable(response), Not(HasSubstr("preemptions")));
  response.mutable_receipt()->set_ahead_tokens(260);
  response.mutable_receipt()->set_preemptions(2);
  EXPECT_THAT(ReceiptTable(response), HasSubstr("cached 270, ahead 260)\n"));
  EXPECT_THAT(ReceiptTable(response), HasSubstr("preemptions                    2\n"));
  const base::Json json = AnswerJson("x", response);
  EXPECT_EQ(json["receipt"]["ahead_tokens"], 260);
  EXPECT_EQ(json["receipt"]["preemptions"], 2);
}

TEST(ReceiptTextTest, WhoAnsweredAndWhatWasLeftOutAreShownWhereThereIsSomethingToTell) {
  v1::GenerateResponse response;
  v1::ImageReceipt& image = *response.mutable_receipt()->add_images();
  EXPECT_THAT(ReceiptTable(response), Not(HasSubstr("answered by")));
  image.set_replica("10.0.0.1:9100");
  image.set_replica_reason("affinity");
  response.mutable_receipt()->set_replica("10.0.0.2:9200");
  response.mutable_receipt()->set_replica_reason("only replica");
  response.mutable_receipt()->add_degraded("picture 1 was left out");
  const std::string table = ReceiptTable(response);
  EXPECT_THAT(table, HasSubstr("made by 10.0.0.1:9100 (affinity)\n"));
  EXPECT_THAT(table, HasSubstr("answered by 10.0.0.2:9200 (only replica)\n"));
  EXPECT_THAT(table, HasSubstr("degraded: picture 1 was left out\n"));
  const base::Json json = AnswerJson("x", response);
  EXPECT_EQ(json["receipt"]["replica"], "10.0.0.2:9200");
  EXPECT_EQ(json["receipt"]["images"][0]["replica_reason"], "affinity");
}

TEST(ReceiptTextTest, ATokenThatIsNoWholeCharacterIsToldInBytes) {
  LogprobList logprobs;
  v1::TokenLogprob& token = *logprobs.Add();
  token.mutable_chosen()->set_id(7);
  token.mutable_chosen()->set_token("\xe8\xaf");
  token.mutable_chosen()->set_logprob(-0.5);
  token.add_top()->set_token("a");
  const base::Json json = LogprobsJson(logprobs);
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["id"], 7);
  EXPECT_TRUE(json[0]["token"].is_null());
  EXPECT_EQ(json[0]["bytes"], (base::Json{0xe8, 0xaf}));
  EXPECT_EQ(json[0]["logprob"], -0.5);
  EXPECT_EQ(json[0]["top"][0]["token"], "a");
}

}  // namespace
}  // namespace tessera::tools
