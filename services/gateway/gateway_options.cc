#include "services/gateway/gateway_options.h"

#include "common/base/error.h"

namespace tessera::gateway {

absl::Status GatewayOptions::Validate() const {
  const auto bad = [](absl::string_view flag, absl::string_view message) {
    return base::BadField(flag, "BAD_OPTION", message);
  };
  if (model_name.empty()) return bad("model", "the served model needs a name");
  if (max_image_bytes == 0 || max_image_bytes >= max_message_bytes) {
    return bad("max_image_bytes", "must be above 0 and below --max_message_bytes");
  }
  if (max_message_bytes > (size_t{1} << 30)) return bad("max_message_bytes", "at most 1 GiB");
  if (max_images < 1) return bad("max_images", "must be at least 1");
  if (max_requests < 1) return bad("max_requests", "must be at least 1");
  if (deadline_cap <= absl::ZeroDuration()) return bad("deadline_cap", "must be above 0");
  if (known_images == 0) return bad("known_images", "must be at least 1");
  if (handle_ttl <= absl::ZeroDuration()) return bad("handle_ttl", "must be above 0");
  if (handle_key.size() < 16) return bad("image_handle_key_file", "needs at least 16 bytes");
  return absl::OkStatus();
}

}  // namespace tessera::gateway
