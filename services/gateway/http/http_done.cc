#include "services/gateway/http/http_done.h"

#include "common/base/error.h"
#include "common/rpc/trace/request_end.h"

namespace tessera::gateway::http {
namespace {

// What gRPC would have said. The reasons are those of what refuses a body.
absl::Status StatusOf(int status) {
  switch (status) {
    case 401:
      return absl::UnauthenticatedError("");
    case 404:
      return absl::NotFoundError("");
    case 408:
      return absl::DeadlineExceededError("");
    case 413:
      return base::Error(absl::StatusCode::kInvalidArgument, "BODY_TOO_LARGE", "");
    case 429:
      return base::Error(absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED", "");
    case 499:
      return absl::CancelledError("");
    case 503:
      return base::Error(absl::StatusCode::kUnavailable, "BODIES_FULL", "");
    default:
      break;
  }
  return status < 500 ? absl::InvalidArgumentError("") : absl::InternalError("");
}

}  // namespace

std::function<void(const HttpDone&)> TellRefusals(const RequestMetrics& metrics,
                                                  rpc::SpanExporter* spans) {
  return [&metrics, spans](const HttpDone& done) {
    if (done.entered || done.route != "chat" || done.status < 400) return;
    rpc::RequestContext request;
    request.request_id = done.request_id;
    request.trace = done.trace;
    const absl::Status status = StatusOf(done.status);
    metrics.Count(RequestKind::kChat, status, "admission");
    rpc::TellEnd({.service = "gateway",
                  .method = "ChatCompletions",
                  .protocol = "http",
                  .request = request,
                  .start = done.arrival,
                  .end = done.end,
                  .status = status,
                  .facts = {{"http_status", done.status}}},
                 spans);
  };
}

}  // namespace tessera::gateway::http
