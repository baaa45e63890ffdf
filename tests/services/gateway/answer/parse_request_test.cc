#include "services/gateway/answer/parse_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "common/base/error.h"

namespace tessera::gateway {
namespace {

AnswerOptions TwoImageOptions() {
  AnswerOptions options;
  options.model_name = "shelf";
  options.handle_key = std::string(32, 'k');
  options.max_images = 2;
  return options;
}

v1::GenerateRequest GoodRequest() {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data("picture");
  message.add_parts()->set_text("What is this?");
  return request;
}

absl::StatusOr<ParsedRequest> Parse(const v1::GenerateRequest& request) {
  static const AnswerOptions options = TwoImageOptions();
  return ParseRequest(request, "tenant", options, absl::FromUnixSeconds(1'700'000'000));
}

TEST(ParseRequestTest, InlineBytesAreMovedNotCopied) {
  v1::GenerateRequest request = GoodRequest();
  std::string& data = *request.mutable_messages(0)
                           ->mutable_parts(0)
                           ->mutable_image()
                           ->mutable_inline_data()
                           ->mutable_data();
  data = std::string(1000, 'p');
  const char* const bytes = data.data();
  const absl::StatusOr<ParsedRequest> parsed =
      ParseRequest(std::move(request), "tenant", TwoImageOptions(), absl::UnixEpoch());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->pictures.at(0).bytes->TryFlat()->data(), bytes);
}

TEST(ParseRequestTest, PartsKeepTheirOrderAndPicturesAreCounted) {
  v1::GenerateRequest request = GoodRequest();
  request.mutable_messages(0)->add_parts()->mutable_image()->mutable_inline_data()->set_data("b");
  const absl::StatusOr<ParsedRequest> parsed = Parse(request);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->start.tenant(), "tenant");
  ASSERT_EQ(parsed->pictures.size(), 2u);
  const v1::DecodeMessage& turn = parsed->start.messages(0);
  EXPECT_EQ(turn.parts(0).image(), 0u);
  EXPECT_EQ(turn.parts(1).text(), "What is this?");
  EXPECT_EQ(turn.parts(2).image(), 1u);
}

struct BadCase {
  const char* name;
  std::function<void(v1::GenerateRequest&)> spoil;
  const char* field;
};

TEST(ParseRequestTest, EveryMistakeNamesItsField) {
  const float nan = std::nanf("");
  const std::vector<BadCase> cases = {
      {"no messages", [](auto& r) { r.clear_messages(); }, "messages"},
      {"no role", [](auto& r) { r.mutable_messages(0)->clear_role(); }, "messages[0].role"},
      {"no parts", [](auto& r) { r.mutable_messages(0)->clear_parts(); }, "messages[0].parts"},
      {"too many parts",
       [](auto& r) {
         r.add_messages()->set_role("user");
         for (int i = 0; i < 16'384; ++i) r.mutable_messages(1)->add_parts()->set_text("");
       },
       "messages[1].parts"},
      {"empty part", [](auto& r) { r.mutable_messages(0)->add_parts(); }, "messages[0].parts[2]"},
      {"image without source",
       [](auto& r) { r.mutable_messages(0)->mutable_parts(0)->mutable_image()->Clear(); },
       "messages[0].parts[0].image"},
      {"three pictures",
       [](auto& r) {
         for (int i = 0; i < 2; ++i) *r.mutable_messages(0)->add_parts() = r.messages(0).parts(0);
       },
       "messages[0].parts[3]"},
      {"max_tokens 0", [](auto& r) { r.mutable_options()->set_max_tokens(0); },
       "options.max_tokens"},
      {"temperature -1", [](auto& r) { r.mutable_options()->set_temperature(-1); },
       "options.temperature"},
      {"temperature NaN", [nan](auto& r) { r.mutable_options()->set_temperature(nan); },
       "options.temperature"},
      {"top_p 0", [](auto& r) { r.mutable_options()->set_top_p(0); }, "options.top_p"},
      {"top_p 7", [](auto& r) { r.mutable_options()->set_top_p(7); }, "options.top_p"},
      {"min_p NaN", [nan](auto& r) { r.mutable_options()->set_min_p(nan); }, "options.min_p"},
      {"empty stop", [](auto& r) { r.mutable_options()->add_stop(""); }, "options.stop[0]"},
      {"long stop", [](auto& r) { r.mutable_options()->add_stop(std::string(257, 's')); },
       "options.stop[0]"},
      {"100,000 stops",
       [](auto& r) {
         for (int i = 0; i < 100000; ++i) r.mutable_options()->add_stop("s");
       },
       "options.stop"},
      {"repetition_penalty 0", [](auto& r) { r.mutable_options()->set_repetition_penalty(0); },
       "options.repetition_penalty"},
      {"repetition_penalty NaN",
       [nan](auto& r) { r.mutable_options()->set_repetition_penalty(nan); },
       "options.repetition_penalty"},
      {"frequency_penalty -3", [](auto& r) { r.mutable_options()->set_frequency_penalty(-3); },
       "options.frequency_penalty"},
      {"frequency_penalty NaN", [nan](auto& r) { r.mutable_options()->set_frequency_penalty(nan); },
       "options.frequency_penalty"},
      {"presence_penalty 3", [](auto& r) { r.mutable_options()->set_presence_penalty(3); },
       "options.presence_penalty"},
      {"presence_penalty NaN", [nan](auto& r) { r.mutable_options()->set_presence_penalty(nan); },
       "options.presence_penalty"},
      {"bias 101", [](auto& r) { (*r.mutable_options()->mutable_logit_bias())[7] = 101; },
       "options.logit_bias[7]"},
      {"bias NaN", [nan](auto& r) { (*r.mutable_options()->mutable_logit_bias())[7] = nan; },
       "options.logit_bias[7]"},
      {"1025 biases",
       [](auto& r) {
         for (int i = 0; i < 1025; ++i) (*r.mutable_options()->mutable_logit_bias())[i] = 1;
       },
       "options.logit_bias"},
      {"top_logprobs 6", [](auto& r) { r.mutable_options()->set_top_logprobs(6); },
       "options.top_logprobs"},
      {"n 0", [](auto& r) { r.mutable_options()->set_n(0); }, "options.n"},
      {"n 2", [](auto& r) { r.mutable_options()->set_n(2); }, "options.n"},
      {"long session", [](auto& r) { r.set_session(std::string(257, 's')); }, "session"},
  };
  for (const BadCase& bad : cases) {
    v1::GenerateRequest request = GoodRequest();
    bad.spoil(request);
    const absl::Status status = Parse(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << bad.name;
    EXPECT_EQ(base::FieldOf(status), bad.field) << bad.name << ": " << status;
    EXPECT_FALSE(base::ReasonOf(status).empty()) << bad.name;
  }
}

TEST(ParseRequestTest, OptionsAtTheirBordersAreTaken) {
  v1::GenerateRequest request = GoodRequest();
  v1::GenerationOptions& options = *request.mutable_options();
  options.set_repetition_penalty(0.1f);
  options.set_frequency_penalty(-2);
  options.set_presence_penalty(2);
  options.set_top_logprobs(5);
  options.set_n(1);
  for (uint32_t i = 0; i < 1024; ++i) (*options.mutable_logit_bias())[i] = i % 2 ? 100 : -100;
  EXPECT_TRUE(Parse(request).ok()) << Parse(request).status();
}

TEST(ParseRequestTest, AnotherModelIsNotFound) {
  v1::GenerateRequest request = GoodRequest();
  request.set_model("gpt");
  const absl::Status status = Parse(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ResourceOf(status).second, "gpt");
  request.set_model("shelf");
  EXPECT_TRUE(Parse(request).ok());
}

TEST(ParseRequestTest, AnEmptyQuestionIsAQuestion) {
  for (const char* text : {"", " \n"}) {
    v1::GenerateRequest request = GoodRequest();
    request.mutable_messages(0)->clear_parts();
    request.mutable_messages(0)->add_parts()->set_text(text);
    EXPECT_TRUE(Parse(request).ok());
  }
}

TEST(ParseRequestTest, APictureWithoutWordsIsAQuestion) {
  v1::GenerateRequest request = GoodRequest();
  request.mutable_messages(0)->mutable_parts()->RemoveLast();
  EXPECT_TRUE(Parse(request).ok());
}

}  // namespace
}  // namespace tessera::gateway
