#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// W3C Trace Context (https://www.w3.org/TR/trace-context), as far as a service needs it. Pure but
// for the random ids.
namespace tessera::rpc {

// One span of a trace. Ids are bytes, not text.
struct TraceContext {
  std::string trace_id;   // 16, not all 0; empty: there is no trace
  std::string span_id;    // 8, not all 0
  std::string parent_id;  // 8: the caller's span; empty: nobody's
  bool sampled = false;   // somebody keeps the spans of this trace

  bool empty() const { return trace_id.empty(); }
};

// A caller's header; nullopt where it is none: another length than its version has, upper case,
// version ff, ids of zeros alone. Of later versions, and of flags, what is known is read.
std::optional<TraceContext> ParseTraceparent(absl::string_view text);

// The header for the next hop. REQUIRES: not empty.
std::string ToTraceparent(const TraceContext& trace);

// A new span within the caller's, or of a new trace where `traceparent` is none. `sample_new`:
// whether spans of a new one are kept.
TraceContext BeginSpan(absl::string_view traceparent, bool sample_new);

// 8 random bytes, not all 0.
std::string NewSpanId();

}  // namespace tessera::rpc
