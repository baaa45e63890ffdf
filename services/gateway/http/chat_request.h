#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway::http {

// What a request's body may be.
struct ChatLimits {
  size_t max_bytes = size_t{32} << 20;
  uint32_t context_tokens =
      0;                    // of the model; max_tokens beyond it is refused; 0: not checked here
  bool image_urls = false;  // http(s) URLs of pictures are fetched
};

// A picture that is to be fetched: its part has an image without a source.
struct RemoteImage {
  int message = 0;
  int part = 0;
  std::string url;
};

// The body of POST /v1/chat/completions.
struct ChatRequest {
  v1::GenerateRequest request;
  bool stream = false;
  bool include_usage = false;  // of the stream
  bool receipt = false;
  std::vector<RemoteImage> remote;
};

// Types, roles, parts and what HTTP alone has are checked here, ranges by ParseRequest of
// services/gateway/answer/parse_request.h. Unknown fields are ignored. INVALID_ARGUMENT blames a
// field by its name in the body, such as "messages[0].content[1].image_url". Pure.
absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body, const ChatLimits& limits);

// The name in the body of a field of v1::GenerateRequest, which errors from further in blame:
// "messages[0].parts[1].image" is "messages[0].content[1].image_url", "options.top_p" is "top_p",
// "session" is "prompt_cache_key". Other names stay.
std::string ParamOf(absl::string_view field);

}  // namespace tessera::gateway::http
