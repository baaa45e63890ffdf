#pragma once

#include "absl/status/status.h"
#include "common/base/json.h"
#include "services/gateway/http/chat_body.h"

// For chat_request.cc only.
namespace tessera::gateway::http {

// Appends `messages`, which is moved from, to `out`. `urls`: URLs of pictures that stayed in the
// text of the body.
absl::Status ParseMessages(base::Json& messages, const base::LongStrings& urls,
                           const ChatLimits& limits, ChatRequest& out);

}  // namespace tessera::gateway::http
