#pragma once

#include "absl/status/status.h"
#include "common/base/json.h"
#include "services/gateway/http/chat_request.h"

// For chat_request.cc only.
namespace tessera::gateway::http {

// Appends `messages`, which is moved from, to `out`.
absl::Status ParseMessages(base::Json& messages, const ChatLimits& limits, ChatRequest& out);

}  // namespace tessera::gateway::http
