#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/admission_queue.h"
#include "services/gateway/byte_budget.h"
#include "services/gateway/deadline_ladder.h"

namespace tessera::rpc {
class ApiKeys;
class SpanExporter;
}  // namespace tessera::rpc

namespace tessera::gateway {

struct GatewayOptions {
  std::string model_name;                // what clients may write as `model`
  size_t max_image_bytes = 20u << 20;    // of one encoded picture
  size_t max_message_bytes = 32u << 20;  // of one request
  // Of all uploads, until their pictures are encoded; beyond it RESOURCE_EXHAUSTED.
  size_t max_upload_bytes = 256u << 20;
  // Of all requests over gRPC, which keeps each until its call has ended; likewise.
  size_t max_inflight_bytes = 512u << 20;
  int max_images = 16;        // of one request
  int max_requests = 256;     // under way; beyond it RESOURCE_EXHAUSTED
  int max_queued = 128;       // of these, waiting for room in decode; likewise
  double tenant_share = 0.5;  // of all these that one tenant may have where keys are asked for
  // What is changed of a request that would miss its deadline, in this order; empty: nothing.
  std::vector<LadderStep> deadline_ladder = {LadderStep::kRows, LadderStep::kOutput,
                                             LadderStep::kRedirect, LadderStep::kRefuse};
  uint32_t min_output_tokens = 16;  // an answer is not made shorter than this for its deadline
  absl::Duration deadline_cap =
      absl::Seconds(120);  // a missing or longer one becomes this; at most 1 h
  absl::Duration peer_timeout = absl::Seconds(10);  // to find vision and decode at the start
  size_t known_images = 65536;                      // refs remembered
  // Uploads with a session are read by decode ahead of their questions.
  bool ahead_prefill = true;
  // Text of one answer that its client has not taken before the answer waits for it.
  size_t sink_bytes = 64u << 10;
  absl::Duration slow_client_timeout = absl::Seconds(10);  // waited so long: aborted
  // Over gRPC, for a client to read what is left when its answer has ended; then the call is cut.
  absl::Duration last_read_timeout = absl::Seconds(30);
  absl::Duration abort_timeout = absl::Seconds(1);  // likewise, where it ended with an error
  absl::Duration handle_ttl = absl::Hours(1);
  std::string handle_key;  // shared by gateways; at least 16 bytes
  // Who may ask, and for which tenant; outlives the gateway. Null: everybody, as the tenant "".
  const rpc::ApiKeys* api_keys = nullptr;
  rpc::SpanExporter* spans = nullptr;  // of sampled requests; outlives the gateway. Null: none
  std::string quality_warning =
      "(The picture is of low quality; say so if it makes the answer uncertain.)";

  absl::Status Validate() const;  // INVALID_ARGUMENT names the flag
  double share() const;           // tenant_share, or all where nobody is asked for a key
  AdmissionLimits admission_limits() const;
  ByteBudget::Limits upload_limits() const;
  ByteBudget::Limits inflight_limits() const;
  ByteBudget::Limits body_limits(size_t bytes) const;  // of requests over HTTP
  // Of connections over HTTP whose request is not all here.
  ByteBudget::Limits arriving_limits(size_t connections) const;
};

}  // namespace tessera::gateway
