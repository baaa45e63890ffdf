#include "services/gateway/http/http_done.h"

#include "common/rpc/request_end.h"

namespace tessera::gateway::http {
namespace {

// What gRPC would have said.
absl::StatusCode CodeOf(int status) {
  switch (status) {
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 404:
      return absl::StatusCode::kNotFound;
    case 408:
      return absl::StatusCode::kDeadlineExceeded;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 499:
      return absl::StatusCode::kCancelled;
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      break;
  }
  return status < 500 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kInternal;
}

}  // namespace

std::function<void(const HttpDone&)> TellRefusals(rpc::SpanExporter* spans) {
  return [spans](const HttpDone& done) {
    if (done.entered || done.route != "chat" || done.status < 400) return;
    rpc::RequestContext request;
    request.request_id = done.request_id;
    request.trace = done.trace;
    const absl::Status status(CodeOf(done.status), "");
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
