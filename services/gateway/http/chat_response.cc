#include "services/gateway/http/chat_response.h"

#include <cmath>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/text/utf8.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/http/json_text.h"
#include "services/gateway/http/receipt_json.h"

namespace tessera::gateway::http {
namespace {

constexpr double kLeastLogprob = -9999.0;  // JSON has no infinity; OpenAI writes this

std::string Event(const base::Json& json) { return absl::StrCat("data: ", JsonText(json), "\n\n"); }

// Bytes that are no whole characters are spelled out, as OpenAI does: "bytes:\xf0\x9f".
std::string TokenText(const std::string& token) {
  if (text::ValidateUtf8(token).ok()) return token;
  std::string spelled = "bytes:";
  for (const char c : token) {
    absl::StrAppendFormat(&spelled, "\\x%02x", static_cast<unsigned char>(c));
  }
  return spelled;
}

base::Json TokenJson(const v1::TokenProbability& token) {
  base::Json bytes = base::Json::array();
  for (const char c : token.token()) bytes.push_back(static_cast<unsigned char>(c));
  base::Json json = base::Json::object();
  json["token"] = TokenText(token.token());
  json["logprob"] = std::isfinite(token.logprob()) ? token.logprob() : kLeastLogprob;
  json["bytes"] = std::move(bytes);
  return json;
}

base::Json LogprobsJson(const v1::TextPiece& piece) {
  base::Json content = base::Json::array();
  for (const v1::TokenLogprob& token : piece.logprobs()) {
    base::Json one = TokenJson(token.chosen());
    base::Json top = base::Json::array();
    for (const v1::TokenProbability& rival : token.top()) top.push_back(TokenJson(rival));
    one["top_logprobs"] = std::move(top);
    content.push_back(std::move(one));
  }
  base::Json json = base::Json::object();
  json["content"] = std::move(content);
  json["refusal"] = nullptr;
  return json;
}

base::Json UsageJson(const v1::Usage& usage) {
  base::Json json = base::Json::object();
  json["prompt_tokens"] = usage.prompt_tokens();
  json["completion_tokens"] = usage.output_tokens();
  json["total_tokens"] = uint64_t{usage.prompt_tokens()} + usage.output_tokens();
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens()},
                                   {"image_tokens", usage.image_tokens()},
                                   {"text_tokens", usage.prompt_tokens() - usage.image_tokens()}};
  return json;
}

const char* FinishText(v1::FinishReason reason) {
  return reason == v1::FINISH_REASON_LENGTH ? "length" : "stop";
}

}  // namespace

base::Json ChatResponse::Head(const char* object) const {
  base::Json json = base::Json::object();
  json["id"] = heading_.id;
  json["object"] = object;
  json["created"] = heading_.created;
  json["model"] = heading_.model;
  return json;
}

base::Json ChatResponse::Chunk(base::Json delta, base::Json logprobs,
                               base::Json finish_reason) const {
  base::Json choice = base::Json::object();
  choice["index"] = 0;
  choice["delta"] = std::move(delta);
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = std::move(finish_reason);
  base::Json chunk = Head("chat.completion.chunk");
  chunk["choices"] = base::Json::array();
  chunk["choices"].push_back(std::move(choice));
  if (heading_.include_usage) chunk["usage"] = nullptr;
  return chunk;
}

void ChatResponse::AddReceipt(const v1::GenerateResponse& end, base::Json& to) const {
  if (!heading_.receipt) return;
  base::Json own = base::Json::object();
  own["receipt"] = ReceiptJson(end.receipt());
  to["tessera"] = std::move(own);
}

std::string ChatResponse::Whole(const v1::TextPiece& text, const v1::GenerateResponse& end) const {
  base::Json message = base::Json::object();
  message["role"] = "assistant";
  message["content"] = text.text();
  message["refusal"] = nullptr;
  base::Json choice = base::Json::object();
  choice["index"] = 0;
  choice["message"] = std::move(message);
  choice["logprobs"] = heading_.logprobs ? LogprobsJson(text) : base::Json();
  choice["finish_reason"] = FinishText(end.finish_reason());
  base::Json whole = Head("chat.completion");
  whole["choices"] = base::Json::array();
  whole["choices"].push_back(std::move(choice));
  whole["usage"] = UsageJson(end.usage());
  AddReceipt(end, whole);
  return JsonText(whole);
}

std::string ChatResponse::Begin() const {
  return Event(Chunk({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
}

std::string ChatResponse::Piece(const v1::TextPiece& piece) const {
  base::Json logprobs;
  if (heading_.logprobs && piece.logprobs_size() > 0) logprobs = LogprobsJson(piece);
  return Event(Chunk({{"content", piece.text()}}, std::move(logprobs), nullptr));
}

std::string ChatResponse::End(const v1::GenerateResponse& end) const {
  base::Json last = Chunk(base::Json::object(), nullptr, FinishText(end.finish_reason()));
  std::string out;
  if (heading_.include_usage) {
    out = Event(last);
    last = Head("chat.completion.chunk");
    last["choices"] = base::Json::array();
    last["usage"] = UsageJson(end.usage());
  }
  AddReceipt(end, last);
  return absl::StrCat(out, Event(last), "data: [DONE]\n\n");
}

std::string ChatResponse::Failure(const absl::Status& status) {
  return absl::StrCat("data: ", ErrorJson(ToHttpError(status)), "\n\n");
}

}  // namespace tessera::gateway::http
