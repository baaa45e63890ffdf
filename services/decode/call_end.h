#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/rpc/trace/request_context.h"
#include "common/rpc/trace/span.h"
#include "common/rpc/trace/span_exporter.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// CANCELLED (CLIENT_GONE): how a call ends that its caller has left.
absl::Status ClientGone();

// A call of Generate or Prefill that has ended.
struct CallEnd {
  absl::string_view method;
  const rpc::RequestContext& request;
  absl::Time arrival, end;
  const absl::Status& status;
  const Outcome& outcome;  // zeros where the engine never had it
};

// One line of the log, and a span where one is kept; `spans` may be null.
void TellCallEnd(const CallEnd& end, rpc::SpanExporter* spans);

// When its stages were: queue, fetch, prefill, generation. Those that did not happen are left out;
// waiting for a fetch and for a step are two of "queue". Pure.
std::vector<rpc::SpanStage> StagesOf(const Outcome& outcome, absl::Time arrival);

}  // namespace tessera::decode
