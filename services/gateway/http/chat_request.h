#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/gateway/http/chat_body.h"

namespace tessera::gateway::http {

// Types, roles, parts and what HTTP alone has are checked here, ranges by ParseRequest of
// services/gateway/answer/parse_request.h. Unknown fields are ignored. INVALID_ARGUMENT blames a
// field by its name in the body, such as "messages[0].content[1].image_url". Pure.
absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body, const ChatLimits& limits);

// The name in the body of a field of v1::GenerateRequest, which errors from further in blame:
// "messages[0].parts[1].image" is "messages[0].content[1].image_url", "options.top_p" is "top_p",
// "session" is "prompt_cache_key". Other names stay.
std::string ParamOf(absl::string_view field);

}  // namespace tessera::gateway::http
