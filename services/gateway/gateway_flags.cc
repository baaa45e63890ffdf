#include "services/gateway/gateway_flags.h"

namespace tessera::gateway {

using flags::Bytes;
using flags::OnOff;
using flags::Value;
using flags::ValueOrEmpty;

namespace {

flags::FlagValue Ladder(std::vector<LadderStep>& target) {
  return {.type = "STEP,...",
          .text = LadderText(target),
          .empty_ok = true,
          .set = [&target](const std::string& text) {
            absl::StatusOr<std::vector<LadderStep>> steps = ParseLadder(text);
            if (!steps.ok()) return steps.status();
            target = *std::move(steps);
            return absl::OkStatus();
          }};
}

}  // namespace

std::vector<flags::Flag> GatewayFlags(GatewayOptions& gateway) {
  return {
      {"quality_warning", ValueOrEmpty(gateway.quality_warning),
       "text put behind the question when a picture's quality is low"},
      {"max_image_bytes", Bytes(gateway.max_image_bytes), "of one encoded picture"},
      {"max_message_bytes", Bytes(gateway.max_message_bytes), "of one request"},
      {"max_upload_bytes", Bytes(gateway.max_upload_bytes),
       "of all uploads whose pictures are not encoded yet"},
      {"max_inflight_bytes", Bytes(gateway.max_inflight_bytes),
       "of all requests under way over gRPC"},
      {"max_images", Value(gateway.max_images), "of one request"},
      {"max_requests", Value(gateway.max_requests), "under way"},
      {"max_queued", Value(gateway.max_queued), "of these, waiting for room in decode"},
      {"tenant_share", Value(gateway.tenant_share),
       "of all these that one tenant may have where keys are asked for"},
      {"deadline_ladder", Ladder(gateway.deadline_ladder),
       "what is changed of a request that would miss its deadline, in this order; empty: nothing"},
      {"min_output_tokens", Value(gateway.min_output_tokens),
       "an answer is not made shorter than this for its deadline"},
      {"ahead_prefill", OnOff(gateway.ahead_prefill),
       "on: what is uploaded with a session is read ahead of its questions"},
      {"deadline_cap", Value(gateway.deadline_cap), "a longer deadline becomes this; at most 1h"},
      {"handle_ttl", Value(gateway.handle_ttl), "life of an image handle"},
  };
}

std::vector<flags::Flag> AccessFlags(rpc::AccessOptions& options) {
  return {
      {"api_keys_file", ValueOrEmpty(options.api_keys_file),
       "bearer keys, a line TENANT sha256:HEX each [none is asked for]; read again when it "
       "changes"},
      {"tls_cert_file", ValueOrEmpty(options.tls.cert),
       "PEM; TLS instead of plain text; read again when it changes"},
      {"tls_key_file", ValueOrEmpty(options.tls.key), "of that certificate, PEM"},
      {"tls_client_ca_file", ValueOrEmpty(options.tls.ca),
       "PEM; clients of gRPC and HTTP must show a certificate of it; the operations port asks for "
       "none"},
      {"allow_unauthenticated_network", OnOff(options.allow_unauthenticated_network),
       "on: listen beyond this machine without keys; anyone who gets there asks, reads what all "
       "others uploaded and uses all of the device"},
  };
}

}  // namespace tessera::gateway
