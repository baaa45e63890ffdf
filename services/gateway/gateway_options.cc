#include "services/gateway/gateway_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/check_range.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/call_limits.h"

namespace tessera::gateway {
absl::Status GatewayOptions::Validate() const {
  const auto bad = [](absl::string_view flag, absl::string_view message) {
    return base::BadField(flag, "BAD_OPTION", absl::StrCat("--", flag, " ", message));
  };
  if (model_name.empty() || model_name.size() > 128 ||
      !std::all_of(model_name.begin(), model_name.end(),
                   [](unsigned char c) { return absl::ascii_isgraph(c); })) {
    return bad("model_name", "must have 1 to 128 printable ASCII characters without spaces");
  }
  if (max_message_bytes < 1024 || max_message_bytes > (size_t{1} << 30)) {
    return bad("max_message_bytes", "must be from 1 KiB to 1 GiB");
  }
  if (max_image_bytes == 0 || max_image_bytes >= max_message_bytes) {
    return bad("max_image_bytes", "must be above 0 and below --max_message_bytes");
  }
  if (max_images < 1) return bad("max_images", "must be at least 1");
  if (max_requests < 1) return bad("max_requests", "must be at least 1");
  if (max_queued < 1) return bad("max_queued", "must be at least 1");
  RETURN_IF_ERROR(base::CheckShare("tenant_share", tenant_share));
  if (min_output_tokens < 1) return bad("min_output_tokens", "must be at least 1");
  if (deadline_cap <= absl::ZeroDuration() || deadline_cap > rpc::kLongestCall) {
    return bad("deadline_cap", absl::StrCat("must be above 0 and at most ",
                                            absl::FormatDuration(rpc::kLongestCall)));
  }
  if (known_images == 0) return bad("known_images", "must be at least 1");
  if (sink_bytes < 1024) return bad("sink_bytes", "must be at least 1 KiB");
  if (slow_client_timeout <= absl::ZeroDuration())
    return bad("slow_client_timeout", "must be above 0");
  if (last_read_timeout <= absl::ZeroDuration()) return bad("last_read_timeout", "must be above 0");
  if (abort_timeout <= absl::ZeroDuration()) return bad("abort_timeout", "must be above 0");
  if (handle_ttl < absl::Seconds(1) || handle_ttl > absl::Hours(24 * 366)) {
    return bad("handle_ttl", "must be from 1s to 8784h");
  }
  if (max_upload_bytes < max_image_bytes) {
    return bad("max_upload_bytes", "must be at least --max_image_bytes");
  }
  if (handle_key.size() < 16) return bad("image_handle_key_file", "needs at least 16 bytes");
  return absl::OkStatus();
}

AdmissionLimits GatewayOptions::admission_limits() const {
  const bool refuses = std::find(deadline_ladder.begin(), deadline_ladder.end(),
                                 LadderStep::kRefuse) != deadline_ladder.end();
  return {.max_requests = max_requests,
          .max_queued = max_queued,
          .tenant_share = share(),
          .refuse_late = refuses};
}

}  // namespace tessera::gateway
