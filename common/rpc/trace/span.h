#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/trace/trace_context.h"

namespace tessera::rpc {

// A part of a span with a time of its own.
struct SpanStage {
  std::string name;  // "preprocess"
  absl::Time start, end;
};

// What one service did for one request. A value.
struct Span {
  using Attribute = std::variant<std::string, int64_t, double, bool>;

  std::string service;  // "gateway"
  std::string name;     // "tessera.v1.GatewayService/Generate"
  TraceContext trace;
  absl::Time start, end;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string error;  // a reason or a code, where there was one
  std::vector<std::pair<std::string, Attribute>> attributes;
  std::vector<std::pair<std::string, absl::Time>> events;
  std::vector<SpanStage> stages;  // spans below this one

  // As spans that a collector counts.
  size_t count() const { return 1 + stages.size(); }
};

}  // namespace tessera::rpc
