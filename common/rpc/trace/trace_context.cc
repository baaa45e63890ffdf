#include "common/rpc/trace/trace_context.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"

namespace tessera::rpc {
namespace {

constexpr size_t kTraceIdBytes = 16;
constexpr size_t kSpanIdBytes = 8;
constexpr size_t kVersion0Chars = 55;  // version-trace-span-flags: 2 + 32 + 16 + 2, three dashes
constexpr int kSampled = 1;

bool IsLowerHex(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool IsZero(absl::string_view bytes) { return bytes.find_first_not_of('\0') == bytes.npos; }

std::string NewId(size_t bytes) {
  std::string id;
  do {
    id = base::RandomBytes(bytes);
  } while (IsZero(id));
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(absl::string_view text) {
  if (text.size() < kVersion0Chars) return std::nullopt;
  const absl::string_view version = text.substr(0, 2), trace = text.substr(3, 32),
                          span = text.substr(36, 16), flags = text.substr(53, 2);
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  if (text.size() > kVersion0Chars && (version == "00" || text[55] != '-')) return std::nullopt;
  if (version == "ff" || !IsLowerHex(version) || !IsLowerHex(trace) || !IsLowerHex(span) ||
      !IsLowerHex(flags)) {
    return std::nullopt;
  }
  TraceContext context;
  context.trace_id = absl::HexStringToBytes(trace);
  context.span_id = absl::HexStringToBytes(span);
  context.sampled = (absl::HexStringToBytes(flags)[0] & kSampled) != 0;
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  return context;
}

std::string ToTraceparent(const TraceContext& trace) {
  return absl::StrCat("00-", base::ToHex(trace.trace_id), "-", base::ToHex(trace.span_id),
                      trace.sampled ? "-01" : "-00");
}

TraceContext BeginSpan(absl::string_view traceparent, bool sample_new) {
  std::optional<TraceContext> caller = ParseTraceparent(traceparent);
  TraceContext trace;
  trace.trace_id = caller ? std::move(caller->trace_id) : NewId(kTraceIdBytes);
  trace.span_id = NewSpanId();
  if (caller) trace.parent_id = std::move(caller->span_id);
  trace.sampled = caller ? caller->sampled : sample_new;
  return trace;
}

std::string NewSpanId() { return NewId(kSpanIdBytes); }

}  // namespace tessera::rpc
