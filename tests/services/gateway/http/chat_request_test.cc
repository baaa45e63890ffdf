#include "services/gateway/http/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "services/gateway/answer/parse_request.h"
#include "services/gateway/http/http_error.h"

namespace tessera::gateway::http {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

AnswerOptions Options() {
  AnswerOptions options;
  options.model_name = "shelf-vqa";
  options.handle_key = std::string(32, 'k');
  return options;
}

ChatLimits Limits() {
  ChatLimits limits;
  limits.context_tokens = 4096;
  return limits;
}

// What a request comes to before it leaves the gateway.
absl::Status Verdict(const std::string& body) {
  const absl::StatusOr<ChatRequest> chat = ParseChatRequest(body, Limits());
  if (!chat.ok()) return chat.status();
  return ParseRequest(chat->request, "", Options(), absl::UnixEpoch()).status();
}

ChatRequest Parsed(absl::string_view fields) {
  absl::StatusOr<ChatRequest> chat =
      ParseChatRequest(absl::StrCat(R"({"messages":[{"role":"user","content":"What?"}])",
                                    fields.empty() ? "" : ",", fields, "}"),
                       Limits());
  EXPECT_TRUE(chat.ok()) << fields << ": " << chat.status();
  return chat.ok() ? *std::move(chat) : ChatRequest();
}

absl::Status Refusal(absl::string_view fields) {
  return Verdict(absl::StrCat(R"({"messages":[{"role":"user","content":"What?"}],)", fields, "}"));
}

std::string BodyOf(const base::Json& test) {
  if (test.contains("body")) return test["body"];
  std::string body;
  if (test.contains("body_base64")) {
    EXPECT_TRUE(absl::Base64Unescape(test["body_base64"].get<std::string>(), &body));
    return body;
  }
  for (const base::Json& part : test["body_parts"]) {
    for (int i = 0; i < part[1].get<int>(); ++i) body += part[0].get<std::string>();
  }
  return body;
}

// Verdicts that are not the gateway's: whether bytes are a picture is vision's, how many tokens a
// prompt has is decode's. Both are asked over the wire by tests/integration.
bool IsJudgedFurtherIn(const base::Json& test, const std::string& body) {
  const bool picture = absl::StrContains(body, ";base64,");
  const bool long_prompt = body.size() > 100'000;
  return test["http_status"] == 400 && test["param"] == "messages" && (picture || long_prompt);
}

bool FitsStatus(const base::Json& test, int status) {
  return test["http_status"] == status ||
         (test.contains("status_may_also_be") && test["status_may_also_be"] == status);
}

bool FitsParam(const base::Json& test, const std::string& param) {
  const auto flag = [&test](const char* name) { return test.contains(name) && test[name] == true; };
  if (flag("param_may_be_any")) return true;
  if (!test.contains("param") || test["param"].is_null()) return param.empty();
  if (param.empty()) return flag("param_may_be_null");
  const std::string wanted = test["param"];
  return param == wanted || absl::StartsWith(param, wanted + ".") ||
         absl::StartsWith(param, wanted + "[");
}

TEST(ChatRequestTest, EveryVerdictOfTheGoldensIsRight) {
  const char* place = std::getenv("TESSERA_GOLDENS");
  const std::string file =
      absl::StrCat(place == nullptr ? "tests/goldens" : place, "/json_bad/verdicts.json");
  absl::StatusOr<base::Json> goldens = base::ReadJsonFile(file);
  ASSERT_TRUE(goldens.ok()) << goldens.status();
  int further_in = 0;
  for (const base::Json& test : (*goldens)["cases"]) {
    const std::string name = test["name"], body = BodyOf(test);
    const absl::Status verdict =
        body.size() > Limits().max_bytes  // refused by the connection, which counts the bytes
            ? base::WithFact(absl::InvalidArgumentError("too large"), "limit", "bytes")
            : Verdict(body);
    if (verdict.ok()) {
      if (FitsStatus(test, 200)) continue;
      EXPECT_TRUE(IsJudgedFurtherIn(test, body)) << name << " is taken";
      ++further_in;
      continue;
    }
    const HttpError error = ToHttpError(verdict);
    EXPECT_TRUE(FitsStatus(test, error.status)) << name << ": " << verdict;
    EXPECT_TRUE(FitsParam(test, error.param)) << name << ": " << error.param << " " << verdict;
    if (test["http_status"] != 200) {
      EXPECT_EQ(test["error_type"], error.type) << name;
    }
  }
  std::cout << (*goldens)["cases"].size() << " cases, " << further_in << " judged further in\n";
  EXPECT_GT((*goldens)["cases"].size(), 0u);
  EXPECT_LE(further_in, 5);  // half a picture, random bytes, GIF, one base64 character, long prompt
}

TEST(ChatRequestTest, FieldsReachTheRequest) {
  const ChatRequest chat = Parsed(
      R"("model":"m","max_tokens":9,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,
         "seed":-1,"stop":["a","b"],"presence_penalty":1,"frequency_penalty":-1,
         "repetition_penalty":1.5,"logit_bias":{"17":-100,"5":2.5},"logprobs":true,
         "top_logprobs":3,"prompt_cache_key":"s","n":1,"user":"u","stream":true,
         "stream_options":{"include_usage":true},
         "tessera":{"receipt":true,"on_encoder_loss":"TEXT_ONLY"})");
  EXPECT_TRUE(chat.stream && chat.include_usage && chat.receipt);
  const v1::GenerateRequest& request = chat.request;
  EXPECT_EQ(request.model(), "m");
  EXPECT_EQ(request.session(), "s");
  EXPECT_EQ(request.on_encoder_loss(), v1::ENCODER_LOSS_TEXT_ONLY);
  const v1::GenerationOptions& options = request.options();
  EXPECT_EQ(options.max_tokens(), 9u);
  EXPECT_EQ(options.temperature(), 0.5f);
  EXPECT_EQ(options.top_p(), 0.25f);
  EXPECT_EQ(options.top_k(), 7u);
  EXPECT_EQ(options.min_p(), 0.125f);
  EXPECT_EQ(options.seed(), ~uint64_t{0});
  EXPECT_THAT(options.stop(), ElementsAre("a", "b"));
  EXPECT_EQ(options.presence_penalty(), 1);
  EXPECT_EQ(options.frequency_penalty(), -1);
  EXPECT_EQ(options.repetition_penalty(), 1.5f);
  EXPECT_EQ(options.logit_bias().at(17), -100);
  EXPECT_EQ(options.logit_bias().at(5), 2.5f);
  EXPECT_EQ(options.top_logprobs(), 3u);
}

TEST(ChatRequestTest, WhatIsAbsentIsLeftToItsDefault) {
  const ChatRequest chat = Parsed("");
  EXPECT_FALSE(chat.stream || chat.include_usage || chat.receipt);
  EXPECT_EQ(chat.request.options().ByteSizeLong(), 0u);
  EXPECT_EQ(chat.request.model(), "");
  EXPECT_EQ(Parsed(R"("top_k":-1)").request.options().has_top_k(), false);
  EXPECT_TRUE(Parsed(R"("logprobs":true)").request.options().has_top_logprobs());
  EXPECT_FALSE(Parsed(R"("logprobs":false)").request.options().has_top_logprobs());
}

TEST(ChatRequestTest, NumbersBeyondAllBoundsNameTheirField) {
  for (const char* bad : {R"("top_k":-5)",
                          R"("top_k":1e10)",
                          R"("n":0)",
                          R"("n":1000000)",
                          R"("n":-1)",
                          R"("temperature":1e300)",
                          R"("temperature":-1)",
                          R"("top_p":7)",
                          R"("logit_bias":{"-1":1})",
                          R"("logit_bias":{"2147483648000":1})",
                          R"("logit_bias":{"x":1})",
                          R"("logit_bias":{"1":"x"})",
                          R"("logit_bias":{"1":null})",
                          R"("top_logprobs":6,"logprobs":true)",
                          R"("max_tokens":4097)",
                          R"("max_completion_tokens":18446744073709551615)",
                          R"("seed":18446744073709551615)",
                          R"("min_p":2)",
                          R"("repetition_penalty":0)",
                          R"("prompt_cache_key":5)",
                          R"("tessera":{"reciept":true})",
                          R"("tessera":{"on_encoder_loss":"MAYBE"})"}) {
    const absl::Status refused = Refusal(bad);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bad;
    const std::string field(absl::string_view(bad).substr(1, absl::string_view(bad).find(':') - 2));
    EXPECT_THAT(ToHttpError(refused).param, StartsWith(field)) << bad << ": " << refused;
    EXPECT_THAT(ToHttpError(refused).message, HasSubstr(field)) << bad;
  }
}

TEST(ChatRequestTest, ABodyOfTooManyValuesIsRefusedWhileItIsRead) {
  std::string values = "0";
  for (int i = 0; i < 140'000; ++i) values += ",0";
  const absl::Status refused = Refusal("\"other\":[" + values + "]");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("more than 131072 values"));
}

TEST(ChatRequestTest, EveryBiasOfALongObjectIsItsOwn) {
  std::string biases = R"("0":0)";
  for (int i = 1; i < 100'000; ++i) biases += absl::StrCat(",\"", i, "\":", i % 100);
  const ChatRequest chat = Parsed("\"logit_bias\":{" + biases + "}");
  EXPECT_EQ(chat.request.options().logit_bias_size(), 100'000);
  EXPECT_EQ(chat.request.options().logit_bias().at(98'765), 65);
}

TEST(ChatRequestTest, PartsKeepTheirOrder) {
  absl::StatusOr<ChatRequest> chat = ParseChatRequest(
      R"({"messages":[{"role":"developer","content":"Be brief."},{"role":"assistant","content":null},
          {"role":"user","content":[{"type":"text","text":"a"},
            {"type":"image_url","image_url":"data:,x"},
            {"type":"image_url","image_url":{"url":"Tessera-Image:abc","detail":"low"}},
            {"type":"text","text":"b"}]}]})",
      Limits());
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_THAT(chat->request.messages(), SizeIs(3));
  EXPECT_EQ(chat->request.messages(0).role(), "system");
  EXPECT_EQ(chat->request.messages(1).parts(0).text(), "");
  const v1::Message& message = chat->request.messages(2);
  ASSERT_THAT(message.parts(), SizeIs(4));
  EXPECT_EQ(message.parts(0).text(), "a");
  EXPECT_EQ(message.parts(1).image().uri(), "data:,x");
  EXPECT_EQ(message.parts(2).image().handle(), "abc");
  EXPECT_EQ(message.parts(3).text(), "b");
}

std::string WithPicture(absl::string_view url) {
  return absl::StrCat(R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"},)",
                      R"({"type":"image_url","image_url":{"url":")", url, R"("}}]}]})");
}

TEST(ChatRequestTest, PathsAndOtherSchemesAreRefused) {
  for (const char* url :
       {"/etc/passwd", "file:///etc/passwd", "../x.png", "x.png", "ftp://a/b.png", "FILE:/x",
        "javascript:1", "http://a/b.png", "HTTPS://a/b.png", "http:x"}) {
    const absl::Status refused = Verdict(WithPicture(url));
    EXPECT_EQ(ToHttpError(refused).status, 400) << url;
    EXPECT_THAT(ToHttpError(refused).param, StartsWith("messages[0].content[1].image_url")) << url;
    EXPECT_EQ(ToHttpError(refused).code, "image_url") << url;
  }
}

TEST(ChatRequestTest, UrlsToFetchAreListedWhereTheyMayBe) {
  ChatLimits limits = Limits();
  limits.image_urls = true;
  absl::StatusOr<ChatRequest> chat = ParseChatRequest(WithPicture("https://a.b/c.png"), limits);
  ASSERT_TRUE(chat.ok()) << chat.status();
  ASSERT_THAT(chat->remote, SizeIs(1));
  EXPECT_EQ(chat->remote[0].message, 0);
  EXPECT_EQ(chat->remote[0].part, 1);
  EXPECT_EQ(chat->remote[0].url, "https://a.b/c.png");
  EXPECT_EQ(chat->request.messages(0).parts(1).image().source_case(), v1::Image::SOURCE_NOT_SET);
}

TEST(ChatRequestTest, APictureIsReadFromWhereItStandsAsAnyOther) {
  const std::string payload = "QUJD\\nREVG";  // an escape: not as it stands
  for (const std::string& url :
       {std::string("data:image/png;base64,QUJDREVG"), "DATA:;base64," + payload,
        std::string("data:image/png;base64,QUJDR"), std::string("data:text/plain;base64,QUJDREVG"),
        std::string("data:image/png;base64,"), std::string("tessera-image:QUJDREVG"),
        std::string("https://a.b/QUJDREVG.png"), std::string("/etc/passwd")}) {
    ChatLimits copied = Limits(), in_place = Limits();
    copied.image_urls = in_place.image_urls = true;
    copied.long_url_bytes = 1 << 20;
    in_place.long_url_bytes = 1;
    absl::StatusOr<ChatRequest> a = ParseChatRequest(WithPicture(url), copied);
    absl::StatusOr<ChatRequest> b = ParseChatRequest(WithPicture(url), in_place);
    ASSERT_TRUE(a.ok() && b.ok()) << url;
    EXPECT_EQ(a->request.DebugString(), b->request.DebugString()) << url;
    ASSERT_EQ(a->remote.size(), b->remote.size()) << url;
    for (size_t i = 0; i < a->remote.size(); ++i) {
      EXPECT_EQ(a->remote[i].url, b->remote[i].url);
    }
  }
}

TEST(ChatRequestTest, ADataUrlIsDecodedOnceWhereItIsAPicture) {
  ChatLimits limits = Limits();
  const std::string good = "data:image/png;base64,QUJDREVG", bad = "data:image/png;base64,QUJDR";
  const auto image_of = [&limits](const std::string& url) {
    absl::StatusOr<ChatRequest> chat = ParseChatRequest(WithPicture(url), limits);
    EXPECT_TRUE(chat.ok()) << chat.status();
    return chat->request.messages(0).parts(1).image();
  };
  EXPECT_EQ(image_of(good).inline_data().data(), "ABCDEF");
  EXPECT_EQ(image_of(bad).uri(), bad);  // to be refused by its place further in
  limits.max_image_bytes = 5;
  EXPECT_EQ(image_of(good).uri(), good);
}

TEST(ChatRequestTest, BytesOverThePictureLimitAre413) {
  AnswerOptions options = Options();
  options.max_image_bytes = 8;
  absl::StatusOr<ChatRequest> chat =
      ParseChatRequest(WithPicture("data:image/png;base64,QUFBQUFBQUFBQUFBQUFBQUFBQUFB"), Limits());
  ASSERT_TRUE(chat.ok());
  const absl::Status refused = ParseRequest(chat->request, "", options, absl::UnixEpoch()).status();
  EXPECT_EQ(ToHttpError(refused).status, 413);
  EXPECT_EQ(ToHttpError(refused).code, "image_too_large");
}

TEST(ChatRequestTest, FieldsOfTheGatewayHaveTheirNamesInTheBody) {
  EXPECT_EQ(ParamOf("messages[3].parts[12].image"), "messages[3].content[12].image_url");
  EXPECT_EQ(ParamOf("messages[0].parts[1]"), "messages[0].content[1]");
  EXPECT_EQ(ParamOf("messages[0].parts"), "messages[0].content");
  EXPECT_EQ(ParamOf("messages[0].role"), "messages[0].role");
  EXPECT_EQ(ParamOf("options.logit_bias[7]"), "logit_bias[7]");
  EXPECT_EQ(ParamOf("session"), "prompt_cache_key");
  EXPECT_EQ(ParamOf("messages[0].content[1].image_url.url"),
            "messages[0].content[1].image_url.url");
  EXPECT_EQ(ParamOf(""), "");
}

}  // namespace
}  // namespace tessera::gateway::http
