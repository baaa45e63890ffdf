#include "services/gateway/http/pages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "services/gateway/http/json_text.h"

namespace tessera::gateway::http {
namespace {

constexpr absl::string_view kModels = "/v1/models";

// Also of a whole URL, as a proxy's client may send it (RFC 9112, 3.2.2); its host is not looked
// at.
absl::string_view PathOf(absl::string_view target) {
  for (const absl::string_view scheme : {"http://", "https://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    break;
  }
  return target.substr(0, target.find('?'));
}

base::Json ModelJson(const PageFacts& facts) {
  base::Json json = base::Json::object();
  json["id"] = facts.model;
  json["object"] = "model";
  json["created"] = facts.created;
  json["owned_by"] = "tessera";
  json["max_model_len"] = facts.context_tokens;
  return json;
}

Response ModelPage(absl::string_view name, const PageFacts& facts) {
  Response page;
  if (name == facts.model) {
    page.body = JsonText(ModelJson(facts));
    return page;
  }
  const std::string shown(name.substr(0, 128));
  return ErrorResponse(ToHttpError(
      base::WithResource(base::Error(absl::StatusCode::kNotFound, "MODEL_NOT_FOUND",
                                     absl::StrCat("model \"", shown, "\" is not served here")),
                         "model", shown)));
}

Response HealthPage(const PageFacts& facts) {
  const absl::Status health = facts.health ? facts.health() : absl::OkStatus();
  if (!health.ok()) {
    return ErrorResponse(ToHttpError(
        base::WithReason(absl::UnavailableError(health.message()),
                         base::ReasonOf(health).empty() ? "NOT_READY" : base::ReasonOf(health))));
  }
  Response page;
  page.body = "{\"status\":\"ok\"}";
  return page;
}

}  // namespace

Route RouteOf(absl::string_view target) {
  const absl::string_view path = PathOf(target);
  if (path == "/v1/chat/completions") return Route::kChat;
  if (path == kModels) return Route::kModels;
  if (absl::string_view name = path;
      absl::ConsumePrefix(&name, kModels) && name.size() > 1 && name[0] == '/') {
    return Route::kModel;
  }
  if (path == "/health") return Route::kHealth;
  return path == "/version" ? Route::kVersion : Route::kUnknown;
}

absl::string_view NameOf(Route route) {
  switch (route) {
    case Route::kChat:
      return "chat";
    case Route::kModels:
    case Route::kModel:
      return "models";
    case Route::kHealth:
      return "health";
    case Route::kVersion:
      return "version";
    case Route::kUnknown:
      return "unknown";
  }
  return "unknown";
}

absl::string_view AllowOf(Route route) {
  return route == Route::kChat ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

bool NeedsKey(Route route) {
  return route == Route::kChat || route == Route::kModels || route == Route::kModel;
}

Response PageAt(Route route, absl::string_view target, const PageFacts& facts) {
  if (route == Route::kModel) return ModelPage(PathOf(target).substr(kModels.size() + 1), facts);
  if (route == Route::kHealth) return HealthPage(facts);
  base::Json json = base::Json::object();
  if (route == Route::kVersion) {
    json["version"] = facts.version;
  } else {
    json["object"] = "list";
    json["data"] = base::Json::array();
    json["data"].push_back(ModelJson(facts));
  }
  Response page;
  page.body = JsonText(json);
  return page;
}

}  // namespace tessera::gateway::http
