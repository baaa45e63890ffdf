#include "services/gateway/http/chat_response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/http/http_message.h"

namespace tessera::gateway::http {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChatHeading Heading() {
  ChatHeading heading;
  heading.id = "chatcmpl-1";
  heading.created = 1700000000;
  heading.model = "m";
  return heading;
}

v1::GenerateResponse End() {
  v1::GenerateResponse end;
  end.set_finish_reason(v1::FINISH_REASON_LENGTH);
  end.mutable_usage()->set_prompt_tokens(100);
  end.mutable_usage()->set_image_tokens(64);
  end.mutable_usage()->set_cached_tokens(32);
  end.mutable_usage()->set_output_tokens(5);
  end.mutable_receipt()->mutable_stages()->set_encode_seconds(0.25);
  end.mutable_receipt()->add_images()->set_cache(v1::CACHE_TIER_PREFIX_KV);
  return end;
}

v1::TextPiece Text(const std::string& text) {
  v1::TextPiece piece;
  piece.set_text(text);
  return piece;
}

base::Json Parse(absl::string_view text) {
  absl::StatusOr<base::Json> json = base::ParseJson(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : base::Json();
}

std::vector<base::Json> Chunks(absl::string_view events) {
  std::vector<base::Json> chunks;
  for (absl::string_view event : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&event, "data: "));
    if (event != "[DONE]") chunks.push_back(Parse(event));
  }
  return chunks;
}

constexpr char kWhole[] =
    R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","choices":)"
    R"([{"index":0,"message":{"role":"assistant","content":"hi","refusal":null},"logprobs":null,)"
    R"("finish_reason":"length"}],"usage":{"prompt_tokens":100,"completion_tokens":5,)"
    R"("total_tokens":105,"prompt_tokens_details":{"cached_tokens":32,"image_tokens":64,)"
    R"("text_tokens":36}}})";

TEST(ChatResponseTest, AWholeAnswerIsWhatClientsKnow) {
  EXPECT_EQ(ChatResponse(Heading()).Whole(Text("hi"), End()), kWhole);
}

TEST(ChatResponseTest, AStreamIsWhatClientsKnow) {
  const ChatResponse response(Heading());
  EXPECT_EQ(
      response.Begin(),
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":"
      "1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
      "\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
  EXPECT_THAT(response.Piece(Text("hi")), HasSubstr(R"("delta":{"content":"hi"})"));
  EXPECT_THAT(response.End(End()),
              HasSubstr(R"("delta":{},"logprobs":null,"finish_reason":"length")"));
  EXPECT_THAT(response.End(End()), ::testing::EndsWith("\n\ndata: [DONE]\n\n"));
  EXPECT_THAT(response.End(End()), Not(HasSubstr("usage")));
}

TEST(ChatResponseTest, UsageComesInAChunkWithoutChoices) {
  ChatHeading heading = Heading();
  heading.include_usage = true;
  const ChatResponse response(heading);
  EXPECT_TRUE(Chunks(response.Piece(Text("hi")))[0]["usage"].is_null());
  EXPECT_TRUE(Chunks(response.Piece(Text("hi")))[0].contains("usage"));
  const std::vector<base::Json> last = Chunks(response.End(End()));
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[0]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(last[1]["choices"].empty() && last[1]["choices"].is_array());
  EXPECT_EQ(last[1]["usage"]["total_tokens"], 105);
}

TEST(ChatResponseTest, TheReceiptStandsInTheLastJson) {
  for (const bool usage : {false, true}) {
    ChatHeading heading = Heading();
    heading.receipt = true;
    heading.include_usage = usage;
    const std::vector<base::Json> last = Chunks(ChatResponse(heading).End(End()));
    EXPECT_EQ(last.back()["tessera"]["receipt"]["images"][0]["cache"], "PREFIX_KV");
    EXPECT_EQ(last.back()["tessera"]["receipt"]["encode_seconds"], 0.25);
    EXPECT_EQ(last.size(), usage ? 2u : 1u);
    EXPECT_EQ(last[0].contains("tessera"), !usage);
    EXPECT_TRUE(Parse(ChatResponse(heading).Whole(Text("hi"), End())).contains("tessera"));
  }
}

TEST(ChatResponseTest, LogProbabilitiesHaveBytesAndReadableTokens) {
  ChatHeading heading = Heading();
  heading.logprobs = true;
  v1::TextPiece piece = Text("é");
  v1::TokenLogprob& token = *piece.add_logprobs();
  token.mutable_chosen()->set_token("\xc3");
  token.mutable_chosen()->set_logprob(-0.5);
  token.add_top()->set_token("a\"");
  token.mutable_top(0)->set_logprob(-std::numeric_limits<double>::infinity());
  const base::Json whole = Parse(ChatResponse(heading).Whole(piece, End()));
  const base::Json& one = whole["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(one["token"], "bytes:\\xc3");
  EXPECT_EQ(one["bytes"], base::Json::array({0xc3}));
  EXPECT_EQ(one["logprob"], -0.5);
  EXPECT_EQ(one["top_logprobs"][0]["token"], "a\"");
  EXPECT_EQ(one["top_logprobs"][0]["logprob"], -9999.0);
  EXPECT_EQ(Chunks(ChatResponse(heading).Piece(piece))[0]["choices"][0]["logprobs"]["content"],
            whole["choices"][0]["logprobs"]["content"]);
  EXPECT_TRUE(Chunks(ChatResponse(Heading()).Piece(piece))[0]["choices"][0]["logprobs"].is_null());
}

TEST(ChatResponseTest, TextOfAnyKindStaysOneLineOfAnEvent) {
  const std::string odd = "a\n\ndata: x\r\"\\\x01\xe2\x80\xa8";
  const std::string event = ChatResponse(Heading()).Piece(Text(odd));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
  EXPECT_EQ(event.find('\r'), event.npos);
  EXPECT_EQ(Chunks(event)[0]["choices"][0]["delta"]["content"], odd);
  EXPECT_THAT(ChatResponse(Heading()).Piece(Text("\xff")), HasSubstr("\xef\xbf\xbd"));
}

struct ErrorCase {
  absl::Status status;
  int http;
  const char* type;
  int retry_after;
};

TEST(HttpErrorTest, TheTableOfErrors) {
  using Code = absl::StatusCode;
  const ErrorCase cases[] = {
      {base::BadField("options.top_p", "BAD_PARAMETER", "options.top_p is 7"), 400,
       "invalid_request_error", 0},
      {base::Error(Code::kUnauthenticated, "KEY_MISSING", "x"), 401, "authentication_error", 0},
      {base::Error(Code::kNotFound, "IMAGE_EXPIRED", "x"), 404, "not_found_error", 0},
      {base::WithFact(base::Error(Code::kInvalidArgument, "IMAGE_TOO_LARGE", "x"), "limit",
                      "bytes"),
       413, "invalid_request_error", 0},
      {base::WithRetry(base::Error(Code::kResourceExhausted, "QUEUE_FULL", "x"),
                       absl::Milliseconds(2001)),
       429, "rate_limit_error", 3},
      {absl::CancelledError("x"), 499, "server_error", 0},
      {absl::InternalError("x"), 500, "server_error", 0},
      {absl::UnknownError("x"), 500, "server_error", 0},
      {absl::FailedPreconditionError("x"), 500, "server_error", 0},
      {absl::UnavailableError("x"), 503, "unavailable_error", 1},
      {base::WithRetry(absl::UnavailableError("x"), absl::InfiniteDuration()), 503,
       "unavailable_error", 3600},
      {base::WithRetry(absl::UnavailableError("x"), absl::Seconds(-5)), 503, "unavailable_error",
       1},
      {base::Error(Code::kDeadlineExceeded, "DEADLINE", "x"), 504, "server_error", 0},
  };
  for (const ErrorCase& test : cases) {
    const HttpError error = ToHttpError(test.status);
    EXPECT_EQ(error.status, test.http) << test.status;
    EXPECT_EQ(error.type, test.type) << test.status;
    EXPECT_EQ(error.retry_after, test.retry_after) << test.status;
  }
}

TEST(HttpErrorTest, AllFourKeysAreThere) {
  EXPECT_EQ(ErrorJson(ToHttpError(
                base::BadField("options.top_p", "BAD_PARAMETER", "options.top_p is 7"))),
            R"({"error":{"message":"top_p is 7","type":"invalid_request_error","param":"top_p",)"
            R"("code":"bad_parameter"}})");
  EXPECT_EQ(ErrorJson(ToHttpError(absl::UnavailableError("x"))),
            R"({"error":{"message":"x","type":"unavailable_error","param":null,"code":null}})");
  EXPECT_THAT(ErrorJson(ToHttpError(absl::InternalError("at 0x123"))), Not(HasSubstr("0x123")));
}

TEST(HttpMessageTest, HeadsSayHowTheBodyEnds) {
  Response response;
  response.body = "{}";
  Framing framing;
  framing.request_id = "id";
  framing.now = absl::FromUnixSeconds(784111777);
  EXPECT_EQ(
      Serialize(response, framing),
      "HTTP/1.1 200 OK\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\nx-request-id: id\r\n"
      "content-type: application/json\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n{}");
  framing.head_only = true;
  EXPECT_THAT(Serialize(response, framing), ::testing::EndsWith("keep-alive\r\n\r\n"));
  framing.stream = true;
  EXPECT_THAT(Serialize(response, framing), HasSubstr("transfer-encoding: chunked\r\n"));
  framing.chunked = framing.keep_alive = false;
  EXPECT_THAT(Serialize(response, framing), Not(HasSubstr("transfer-encoding")));
  EXPECT_EQ(ChunkOf(std::string(26, 'x')), "1a\r\n" + std::string(26, 'x') + "\r\n");
}

}  // namespace
}  // namespace tessera::gateway::http
