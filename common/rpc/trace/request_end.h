#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/log.h"
#include "common/rpc/trace/request_context.h"
#include "common/rpc/trace/span.h"

namespace tessera::rpc {

class SpanExporter;

// One request that has ended in one service. Of what it said there is nothing here.
struct RequestEnd {
  absl::string_view service;   // "gateway"
  absl::string_view method;    // "GenerateStream"
  absl::string_view protocol;  // "grpc", "http"
  const RequestContext& request;
  absl::Time start, end;
  const absl::Status& status;          // its message is told to nobody
  std::vector<base::LogFact> facts;    // small ones, for line and span alike
  std::vector<SpanStage> stages = {};  // for the span
  std::vector<std::pair<std::string, absl::Time>> events = {};
};

// One line of the log, and a span where the trace is sampled and there is an exporter (may be
// null). Does not wait for a collector. Any thread.
void TellEnd(RequestEnd end, SpanExporter* spans);

// "DEADLINE_EXCEEDED".
std::string NameOf(absl::StatusCode code);

}  // namespace tessera::rpc
