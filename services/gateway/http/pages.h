#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "services/gateway/http/http_message.h"

namespace tessera::gateway::http {

// What a path of the API is.
enum class Route { kUnknown, kChat, kModels, kModel, kHealth, kVersion };

// Of a request's target, whose query is ignored. "/v1/models/NAME" is kModel.
Route RouteOf(absl::string_view target);

// For metrics and log: "chat", "models", "health", "version", "unknown".
absl::string_view NameOf(Route route);

// "POST, OPTIONS" for kChat, else "GET, HEAD, OPTIONS".
absl::string_view AllowOf(Route route);

// /v1: behind a key, where keys are on.
bool NeedsKey(Route route);

// What the pages tell.
struct PageFacts {
  std::string model;    // its name
  int64_t created = 0;  // since when it is served, seconds since 1970
  uint32_t context_tokens = 0;
  std::string version;
  // Whether new requests are taken; the message of an error is shown. Any thread.
  std::function<absl::Status()> health;
};

// The page at a route other than kChat and kUnknown. Pure but for `health`.
Response PageAt(Route route, absl::string_view target, const PageFacts& facts);

}  // namespace tessera::gateway::http
