#include "services/gateway/api/api_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway {
namespace {

absl::Status Full(absl::StatusCode code, const char* reason, const std::string& message) {
  return base::WithRetry(base::Error(code, reason, message), absl::Seconds(1));
}

}  // namespace

double ApiOptions::share() const { return api_keys == nullptr ? 1 : tenant_share; }

ByteBudget::Limits ApiOptions::upload_limits() const {
  return {.bytes = max_upload_bytes,
          .tenant_share = share(),
          .least = max_image_bytes,
          .full = Full(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                       absl::StrCat("uploads hold ", max_upload_bytes,
                                    " bytes already (--max_upload_bytes); try again in a moment"))};
}

ByteBudget::Limits ApiOptions::inflight_limits() const {
  return {
      .bytes = max_inflight_bytes,
      .tenant_share = share(),
      .least = max_message_bytes,
      .full = Full(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                   absl::StrCat("requests under way hold ", max_inflight_bytes,
                                " bytes already (--max_inflight_bytes); try again in a moment"))};
}

ByteBudget::Limits ApiOptions::body_limits(size_t bytes) const {
  return {.bytes = bytes,
          .tenant_share = share(),
          .least = max_message_bytes,
          .full = Full(absl::StatusCode::kUnavailable, "BODIES_FULL",
                       "too many bytes of requests are held already; try again")};
}

ByteBudget::Limits ApiOptions::arriving_limits(size_t connections) const {
  return {.bytes = connections,
          .tenant_share = share(),
          .least = 1,
          .full = Full(absl::StatusCode::kUnavailable, "CONNECTIONS_FULL",
                       "too many requests are on their way already; try again"),
          .unit = "connections with a request on its way"};
}

}  // namespace tessera::gateway
