#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "services/gateway/admission/byte_budget.h"
#include "services/gateway/answer/answer_options.h"

namespace tessera::rpc {
class ApiKeys;
class SpanExporter;
}  // namespace tessera::rpc

namespace tessera::gateway {

// What clients are held to at the door, over gRPC and over HTTP.
struct ApiOptions : AnswerOptions {
  size_t max_message_bytes = 32u << 20;  // of one request
  // Of all uploads, until their pictures are encoded; beyond it RESOURCE_EXHAUSTED.
  size_t max_upload_bytes = 256u << 20;
  // Of all requests over gRPC, which keeps each until its call has ended; beyond it
  // RESOURCE_EXHAUSTED.
  size_t max_inflight_bytes = 512u << 20;
  // Of requests, bytes and connections, that one tenant may have where keys are asked for.
  double tenant_share = 0.5;
  absl::Duration deadline_cap =
      absl::Seconds(120);  // a missing or longer one becomes this; at most 1 h
  // Uploads with a session are read by decode ahead of their questions.
  bool ahead_prefill = true;
  // Text of one answer that its client has not taken before the answer waits for it.
  size_t sink_bytes = 64u << 10;
  // Over gRPC, for a client to read what is left when its answer has ended; then the call is cut.
  absl::Duration last_read_timeout = absl::Seconds(30);
  absl::Duration abort_timeout = absl::Seconds(1);  // where the answer ended with an error
  // Who may ask, and for which tenant; outlives the gateway. Null: everybody, as the tenant "".
  const rpc::ApiKeys* api_keys = nullptr;
  rpc::SpanExporter* spans = nullptr;  // of sampled requests; outlives the gateway. Null: none

  double share() const;  // tenant_share, or all where nobody is asked for a key
  ByteBudget::Limits upload_limits() const;
  ByteBudget::Limits inflight_limits() const;
  ByteBudget::Limits body_limits(size_t bytes) const;  // of requests over HTTP
  // Of connections over HTTP whose request is not all here.
  ByteBudget::Limits arriving_limits(size_t connections) const;
};

}  // namespace tessera::gateway
