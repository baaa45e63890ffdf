// The body of POST /v1/chat/completions, up to what leaves the gateway. What is taken holds no more
// than was sent, and is valid UTF-8; a refusal can be told in an answer.
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/text/utf8.h"
#include "services/gateway/answer/parse_request.h"
#include "services/gateway/http/chat_request.h"
#include "services/gateway/http/image_url.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

using gateway::AnswerOptions;
using gateway::http::ChatLimits;
using gateway::http::ChatRequest;

void CheckError(const absl::Status& status) {
  CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
        status.code() == absl::StatusCode::kNotFound);
  CHECK(!base::ReasonOf(status).empty());
  CheckMessage(status);
  const std::string param = gateway::http::ParamOf(base::FieldOf(status));
  CHECK(text::ValidateUtf8(param).ok());
}

void CheckRemote(const ChatRequest& chat) {
  for (const gateway::http::RemoteImage& remote : chat.remote) {
    const v1::Message& message = chat.request.messages(remote.message);
    CHECK(message.parts(remote.part).image().source_case() == v1::Image::SOURCE_NOT_SET);
    const auto url = gateway::http::ParseImageUrl(remote.url);
    if (!url.ok()) {
      CheckRefusal(url.status(), {"IMAGE_URL"});
      continue;
    }
    CHECK(!url->host.empty() && url->port != 0);
    for (const std::string* part : {&url->host, &url->authority, &url->target}) {
      for (const char c : *part) CHECK(c > ' ' && c != '\x7F');  // nothing ends a header's line
    }
  }
}

void CheckTaken(const ChatRequest& chat, absl::string_view body) {
  size_t bytes = 0;
  for (const v1::Message& message : chat.request.messages()) {
    CHECK(message.parts_size() > 0);
    for (const v1::Part& part : message.parts()) {
      CHECK(text::ValidateUtf8(part.text()).ok());
      bytes += part.text().size() + part.image().uri().size() + part.image().handle().size() +
               part.image().inline_data().data().size();
    }
  }
  CHECK_LE(bytes, body.size());
  CheckRemote(chat);
}

// What the gateway makes of it before anything else is asked.
void CheckParsed(const ChatRequest& chat) {
  AnswerOptions options;
  options.model_name = "shelf-vqa";
  options.handle_key = std::string(32, 'k');
  const auto parsed = gateway::ParseRequest(chat.request, "tenant", options, absl::UnixEpoch());
  if (!parsed.ok()) return CheckError(parsed.status());
  CHECK_EQ(parsed->pictures.size(), parsed->picture_fields.size());
  CHECK_EQ(parsed->pictures.size(), parsed->picture_turns.size());
}

// A URL that is read from where it stands is read as any other.
void CheckSame(const absl::StatusOr<ChatRequest>& a, const absl::StatusOr<ChatRequest>& b) {
  CHECK(a.status() == b.status());
  if (!a.ok()) return;
  CHECK(a->request.SerializeAsString() == b->request.SerializeAsString());
  CHECK_EQ(a->remote.size(), b->remote.size());
  for (size_t i = 0; i < a->remote.size(); ++i) CHECK(a->remote[i].url == b->remote[i].url);
}

void Run(absl::string_view body) {
  for (const bool urls : {false, true}) {
    ChatLimits limits;
    limits.max_bytes = 256 << 10;
    limits.context_tokens = 4096;
    limits.image_urls = urls;
    const absl::StatusOr<ChatRequest> chat = gateway::http::ParseChatRequest(body, limits);
    limits.long_url_bytes = 8;
    CheckSame(chat, gateway::http::ParseChatRequest(body, limits));
    if (!chat.ok()) {
      CheckError(chat.status());
      continue;
    }
    CHECK(urls || chat->remote.empty());
    CheckTaken(*chat, body);
    CheckParsed(*chat);
  }
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
