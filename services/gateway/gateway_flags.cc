#include "services/gateway/gateway_flags.h"

namespace tessera::gateway {

using flags::Bytes;
using flags::OnOff;
using flags::Value;
using flags::ValueOrEmpty;

std::vector<flags::Flag> GatewayFlags(GatewayOptions& gateway) {
  return {
      {"quality_warning", ValueOrEmpty(gateway.quality_warning),
       "text put behind the question when a picture's quality is low"},
      {"max_image_bytes", Bytes(gateway.max_image_bytes), "of one encoded picture"},
      {"max_message_bytes", Bytes(gateway.max_message_bytes), "of one request"},
      {"max_upload_bytes", Bytes(gateway.max_upload_bytes), "of all uploads under way"},
      {"max_images", Value(gateway.max_images), "of one request"},
      {"max_requests", Value(gateway.max_requests), "in flight"},
      {"ahead_prefill", OnOff(gateway.ahead_prefill),
       "on: what is uploaded with a session is read ahead of its questions"},
      {"deadline_cap", Value(gateway.deadline_cap), "a longer deadline becomes this"},
      {"handle_ttl", Value(gateway.handle_ttl), "life of an image handle"},
  };
}

}  // namespace tessera::gateway
