#include "services/decode/decode_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/decode_service_fixture.h"

namespace tessera::decode {
namespace {

using testing::FakeRecord;
using ::testing::HasSubstr;

void Bias(v1::DecodeStart& start, uint32_t id, float bias) {
  (*start.mutable_options()->mutable_logit_bias())[id] = bias;
}

TEST_F(DecodeServiceTest, ATextIsAcceptedStreamedAndEndsWithItsCost) {
  Start();
  const v1::DecodeStart start = TextStart("How many red books are there?");
  int tokens = 0;
  const std::string expected = Expected(start, {}, &tokens);
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(answer.accepted);
  EXPECT_EQ(answer.text, expected);
  EXPECT_EQ(answer.end.usage().prompt_tokens(), answer.acceptance.prompt_tokens());
  EXPECT_EQ(answer.end.usage().output_tokens(), static_cast<uint32_t>(tokens));
  EXPECT_GT(answer.end.kv_blocks_new(), 0u);
  EXPECT_LE(answer.end.kv_blocks_new(), answer.acceptance.blocks());
  EXPECT_EQ(answer.end.finish_reason(),
            tokens < 30 ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
  EXPECT_GT(answer.end.stages().prefill_seconds(), 0);
}

TEST_F(DecodeServiceTest, PicturesInTheStoreAreReadAndToldInTheReceipt) {
  Start();
  const std::vector<store::RecordPtr> records = {FakeRecord(1, 5), FakeRecord(2, 9)};
  for (const auto& record : records) ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  v1::DecodeStart start = TextStart("Which shelf is fuller?");
  for (const auto& record : records) AddPicture(*record, start);
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, records));
  EXPECT_EQ(answer.end.usage().image_tokens(), 14u);
  ASSERT_EQ(answer.end.images_size(), 2);
  EXPECT_EQ(answer.end.images(1).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(answer.end.images(1).rows(), 9u);
  EXPECT_EQ(answer.end.images(1).bytes_moved(), records[1]->data.size());
}

TEST_F(DecodeServiceTest, MissingRowsAreAskedForAndTheAnswerGoesOnWhenTheyAreReady) {
  Start();
  const std::vector<store::RecordPtr> records = {FakeRecord(1, 5), FakeRecord(2, 9)};
  ASSERT_TRUE(store_.Put(records[0], absl::ZeroDuration()).ok());
  v1::DecodeStart start = TextStart("Which shelf is fuller?");
  for (const auto& record : records) AddPicture(*record, start);
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  Send(*stream, start);
  const Answer answer = ReadAll(*stream, [&](const v1::NeedRows& need) {
    EXPECT_THAT(need.images(), ::testing::ElementsAre(1));
    ASSERT_TRUE(store_.Put(records[1], absl::ZeroDuration()).ok());
    SendRowsReady(*stream, {1});
    stream->WritesDone();
  });
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, Expected(start, records));
  EXPECT_EQ(answer.end.images(0).cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(answer.end.images(1).cache(), v1::CACHE_TIER_LOCAL);
}

TEST_F(DecodeServiceTest, MissingRowsThatNobodyCanAnnounceEndTheCall) {
  Start();
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  Send(*stream, start);
  stream->WritesDone();
  const Answer answer = ReadAll(*stream, [](const v1::NeedRows&) {});
  EXPECT_EQ(answer.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ReasonOf(answer.status), "ROWS_MISSING");
  AwaitFreeBlocks();
}

TEST_F(DecodeServiceTest, AStopTextCutsTheAnswerAndIsNamed) {
  Start({.stops = false});
  v1::DecodeStart start = TextStart("Recite the alphabet.", 60);
  const std::string full = Ask(start).text;
  ASSERT_GT(full.size(), 20u);
  const std::string stop = full.substr(11, 4);
  start.mutable_options()->add_stop(stop);
  start.mutable_options()->add_stop("never said");
  const Answer answer = Ask(start);
  ASSERT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.text, full.substr(0, full.find(stop)));
  EXPECT_EQ(answer.end.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(answer.end.stop_reason(), stop);
  EXPECT_LT(answer.end.usage().output_tokens(), 60u);
}

TEST_F(DecodeServiceTest, BadRequestsNameTheFieldAndTheNextOneWorks) {
  Start();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto options = [](v1::DecodeStart& start) { return start.mutable_options(); };
  const std::vector<std::pair<std::string, std::function<void(v1::DecodeStart&)>>> cases = {
      {"messages", [](auto& s) { s.clear_messages(); }},
      {"messages[0].parts[1]", [](auto& s) { s.mutable_messages(0)->add_parts(); }},
      {"messages[0].parts[1]", [](auto& s) { s.mutable_messages(0)->add_parts()->set_image(7); }},
      {"images", [](auto& s) { s.mutable_messages(0)->add_parts()->set_image(0); }},
      {"images[0].key",
       [](auto& s) {
         AddPicture(*FakeRecord(1, 5), s);
         s.mutable_images(0)->set_key("short");
       }},
      {"images[0].width", [](auto& s) { AddPicture(*FakeRecord(1, 5, 8), s); }},
      {"images[0].rows",
       [](auto& s) {
         AddPicture(*FakeRecord(1, 5), s);
         s.mutable_images(0)->set_rows(0);
       }},
      {"options.max_tokens", [&](auto& s) { options(s)->set_max_tokens(0); }},
      {"options.temperature", [&](auto& s) { options(s)->set_temperature(-1); }},
      {"options.temperature", [&](auto& s) { options(s)->set_temperature(nan); }},
      {"options.top_p", [&](auto& s) { options(s)->set_top_p(0); }},
      {"options.top_p", [&](auto& s) { options(s)->set_top_p(7); }},
      {"options.min_p", [&](auto& s) { options(s)->set_min_p(nan); }},
      {"options.repetition_penalty", [&](auto& s) { options(s)->set_repetition_penalty(nan); }},
      {"options.repetition_penalty", [&](auto& s) { options(s)->set_repetition_penalty(0); }},
      {"options.frequency_penalty", [&](auto& s) { options(s)->set_frequency_penalty(nan); }},
      {"options.presence_penalty", [&](auto& s) { options(s)->set_presence_penalty(2.5f); }},
      {"options.presence_penalty", [&](auto& s) { options(s)->set_presence_penalty(nan); }},
      {"options.logit_bias", [&](auto& s) { Bias(s, kVocabulary, 1); }},
      {"options.logit_bias", [&](auto& s) { Bias(s, 4'000'000'000u, 1); }},
      {"options.logit_bias[7]", [&](auto& s) { Bias(s, 7, 101); }},
      {"options.logit_bias[7]", [&](auto& s) { Bias(s, 7, nan); }},
      {"options.logit_bias",
       [&](auto& s) {
         for (uint32_t id = 0; id < 1025; ++id) Bias(s, id, 1);
       }},
      {"options.top_logprobs", [&](auto& s) { options(s)->set_top_logprobs(6); }},
      {"options.n", [&](auto& s) { options(s)->set_n(0); }},
      {"options.n", [&](auto& s) { options(s)->set_n(2); }},
      {"options.stop", [&](auto& s) { options(s)->add_stop(""); }},
      {"options.stop",
       [&](auto& s) {
         for (int i = 0; i < 100'000; ++i) options(s)->add_stop("x");
       }},
  };
  for (const auto& [field, spoil] : cases) {
    v1::DecodeStart start = TextStart("What is this?");
    spoil(start);
    const Answer answer = Ask(start);
    EXPECT_EQ(answer.status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(base::FieldOf(answer.status), field) << answer.status;
    EXPECT_FALSE(base::ReasonOf(answer.status).empty()) << field;
    EXPECT_FALSE(answer.accepted);
  }
  v1::DecodeStart huge = TextStart("What is this?", 4'000'000'000u);
  huge.mutable_options()->set_top_k(4'000'000'000u);
  EXPECT_TRUE(Ask(huge).status.ok());
}

TEST_F(DecodeServiceTest, APromptThatCanNeverFitIsRefusedWithItsNumbers) {
  Start();
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 240), start);
  const Answer answer = Ask(start);
  EXPECT_EQ(base::ReasonOf(answer.status), "CONTEXT_TOO_LONG");
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("240 of them rows"));
  EXPECT_THAT(std::string(answer.status.message()), HasSubstr("250"));
}

TEST_F(DecodeServiceTest, CallsWithoutOrWithTwoStartsAreRefused) {
  Start();
  {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    stream->WritesDone();
    EXPECT_EQ(ReadAll(*stream).status.code(), absl::StatusCode::kInvalidArgument);
  }
  {
    grpc::ClientContext context;
    auto stream = stub_->Generate(&context);
    stream->Write({});
    EXPECT_EQ(base::ReasonOf(ReadAll(*stream).status), "REQUEST_EMPTY");
  }
  grpc::ClientContext context;
  auto stream = stub_->Generate(&context);
  v1::DecodeStart start = TextStart("What is this?");
  AddPicture(*FakeRecord(1, 5), start);
  Send(*stream, start);
  Send(*stream, start);
  const Answer answer = ReadAll(*stream, [](const v1::NeedRows&) {});
  EXPECT_EQ(base::ReasonOf(answer.status), "START_REPEATED");
  AwaitFreeBlocks();
}

TEST_F(DecodeServiceTest, GetInfoSaysWhatIsServed) {
  Start();
  grpc::ClientContext context;
  v1::DecodeServiceGetInfoResponse response;
  ASSERT_TRUE(stub_->GetInfo(&context, {}, &response).ok());
  EXPECT_EQ(response.family(), "llava");
}

}  // namespace
}  // namespace tessera::decode
