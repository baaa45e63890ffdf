#include "services/gateway/http/http_error.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "services/gateway/http/chat_request.h"
#include "services/gateway/http/json_text.h"

namespace tessera::gateway::http {
namespace {

// Bytes over a limit, of a picture or of a body.
bool TooManyBytes(const absl::Status& status) {
  const auto facts = base::FactsOf(status);
  const auto limit = facts.find("limit");
  return limit != facts.end() && limit->second == "bytes";
}

void SetKind(const absl::Status& status, HttpError& error) {
  const auto set = [&error](int code, const char* type) {
    error.status = code;
    error.type = type;
  };
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      return set(TooManyBytes(status) ? 413 : 400, "invalid_request_error");
    case absl::StatusCode::kUnauthenticated:
      return set(401, "authentication_error");
    case absl::StatusCode::kNotFound:
      return set(404, "not_found_error");
    case absl::StatusCode::kResourceExhausted:
      return set(429, "rate_limit_error");
    case absl::StatusCode::kUnavailable:
      return set(503, "unavailable_error");
    case absl::StatusCode::kDeadlineExceeded:
      return set(504, "server_error");
    case absl::StatusCode::kCancelled:
      return set(499, "server_error");
    default:
      return set(500, "server_error");
  }
}

}  // namespace

HttpError ToHttpError(const absl::Status& status) {
  HttpError error;
  SetKind(status, error);
  const std::string field = base::FieldOf(status);
  error.param = ParamOf(field);
  if (error.param.empty() && base::ResourceOf(status).first == "model") error.param = "model";
  error.code = absl::AsciiStrToLower(base::ReasonOf(status));
  error.message = std::string(status.message());
  if (field.empty()) {  // a place in the words alone
    error.message = absl::StrReplaceAll(error.message,
                                        {{".parts[", ".content["}, {"].image:", "].image_url:"}});
  } else if (error.param != field) {
    error.message = absl::StrReplaceAll(error.message, {{field, error.param}});
  }
  if (error.status == 500) {
    if (error.code.empty()) error.code = "internal";
    error.message = "the server failed to answer; its log tells more under the request's id";
  }
  if (error.status == 429 || error.status == 503) {
    const absl::Duration delay = base::RetryOf(status).value_or(absl::Seconds(1));
    const int64_t seconds = absl::ToInt64Seconds(absl::Ceil(delay, absl::Seconds(1)));
    error.retry_after = static_cast<int>(std::clamp<int64_t>(seconds, 1, 3600));
  }
  return error;
}

std::string ErrorJson(const HttpError& error) {
  base::Json inner = base::Json::object();
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = error.param.empty() ? base::Json() : base::Json(error.param);
  inner["code"] = error.code.empty() ? base::Json() : base::Json(error.code);
  base::Json outer = base::Json::object();
  outer["error"] = std::move(inner);
  return JsonText(outer);
}

}  // namespace tessera::gateway::http
