#include "services/gateway/http/http_message.h"

#include "absl/strings/str_cat.h"

namespace tessera::gateway::http {
namespace {

absl::string_view PhraseOf(int status) {
  static constexpr std::pair<int, absl::string_view> kPhrases[] = {
      {200, "OK"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {413, "Payload Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
  };
  for (const auto& [number, phrase] : kPhrases) {
    if (number == status) return phrase;
  }
  return "Error";
}

}  // namespace

Response ErrorResponse(const HttpError& error) {
  Response response;
  response.status = error.status;
  response.body = ErrorJson(error);
  if (error.retry_after > 0) {
    response.headers.emplace_back("retry-after", absl::StrCat(error.retry_after));
  }
  if (error.status == 401) response.headers.emplace_back("www-authenticate", "Bearer");
  return response;
}

std::string Serialize(const Response& response, const Framing& framing) {
  std::string out = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", PhraseOf(response.status),
      "\r\ndate: ", absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", framing.now, absl::UTCTimeZone()),
      "\r\n");
  if (!framing.request_id.empty()) {
    absl::StrAppend(&out, "x-request-id: ", framing.request_id, "\r\n");
  }
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&out, name, ": ", value, "\r\n");
  }
  if (response.status != 204) {
    absl::StrAppend(&out, "content-type: ", response.content_type, "\r\n");
    if (framing.stream) {
      absl::StrAppend(&out, "cache-control: no-cache\r\nx-accel-buffering: no\r\n",
                      framing.chunked ? "transfer-encoding: chunked\r\n" : "");
    } else {
      absl::StrAppend(&out, "content-length: ", response.body.size(), "\r\n");
    }
  }
  const int64_t idle_seconds = absl::ToInt64Seconds(framing.idle_timeout);
  if (framing.keep_alive && idle_seconds > 0) {
    absl::StrAppend(&out, "keep-alive: timeout=", idle_seconds, "\r\n");
  }
  absl::StrAppend(&out, "connection: ", framing.keep_alive ? "keep-alive" : "close", "\r\n\r\n");
  if (!framing.stream && !framing.head_only && response.status != 204) {
    absl::StrAppend(&out, response.body);
  }
  return out;
}

std::string ChunkOf(absl::string_view bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace tessera::gateway::http
