#include "common/rpc/trace/request_end.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/rpc/trace/span_exporter.h"

namespace tessera::rpc {
namespace {

// What others call our facts (OpenTelemetry's conventions), for who looks for those names.
std::string AttributeOf(absl::string_view fact) {
  if (fact == "model") return "gen_ai.request.model";
  if (fact == "prompt_tokens") return "gen_ai.usage.input_tokens";
  if (fact == "output_tokens") return "gen_ai.usage.output_tokens";
  if (fact == "http_status") return "http.response.status_code";
  return absl::StrCat("tessera.", fact);
}

Span::Attribute ToAttribute(const base::LogFact::Value& value) {
  struct {
    Span::Attribute operator()(absl::string_view text) const { return std::string(text); }
    Span::Attribute operator()(int64_t number) const { return number; }
    Span::Attribute operator()(double number) const { return number; }
    Span::Attribute operator()(bool truth) const { return truth; }
  } visitor;
  return std::visit(visitor, value);
}

std::string SpanName(const RequestEnd& end) {
  if (end.protocol == "http") return "POST /v1/chat/completions";
  std::string service(end.service);
  if (!service.empty()) service[0] = absl::ascii_toupper(static_cast<unsigned char>(service[0]));
  return absl::StrCat("tessera.v1.", service, "Service/", end.method);
}

Span ToSpan(RequestEnd& end, const std::string& reason) {
  Span span;
  span.service = std::string(end.service);
  span.name = SpanName(end);
  span.trace = end.request.trace;
  span.start = end.start;
  span.end = end.end;
  span.code = end.status.code();
  if (!end.status.ok()) span.error = reason.empty() ? NameOf(span.code) : reason;
  auto& attributes = span.attributes;
  attributes.reserve(end.facts.size() + 5);
  attributes.emplace_back("rpc.system", std::string(end.protocol));
  attributes.emplace_back("rpc.method", std::string(end.method));
  attributes.emplace_back("rpc.grpc.status_code", static_cast<int64_t>(end.status.raw_code()));
  attributes.emplace_back("tessera.request_id", end.request.request_id);
  if (!span.error.empty()) attributes.emplace_back("error.type", span.error);
  for (const base::LogFact& fact : end.facts) {
    attributes.emplace_back(AttributeOf(fact.key()), ToAttribute(fact.value()));
  }
  span.events = std::move(end.events);
  span.stages = std::move(end.stages);
  return span;
}

}  // namespace

std::string NameOf(absl::StatusCode code) { return absl::StatusCodeToString(code); }

void TellEnd(RequestEnd end, SpanExporter* spans) {
  const std::string reason = base::ReasonOf(end.status), code = NameOf(end.status.code());
  const TraceContext& trace = end.request.trace;
  const std::string trace_id = base::ToHex(trace.trace_id), span_id = base::ToHex(trace.span_id);
  std::vector<base::LogFact> facts = {{"event", "request"},
                                      {"service", end.service},
                                      {"method", end.method},
                                      {"protocol", end.protocol},
                                      {"request_id", end.request.request_id}};
  if (!trace.empty()) {
    facts.emplace_back("trace_id", trace_id);
    facts.emplace_back("span_id", span_id);
  }
  facts.emplace_back("code", code);
  if (!reason.empty()) facts.emplace_back("reason", reason);
  facts.emplace_back("seconds", absl::ToDoubleSeconds(end.end - end.start));
  facts.insert(facts.end(), end.facts.begin(), end.facts.end());
  base::Log(base::LogLevel::kInfo, "request ended", facts);
  if (spans != nullptr && trace.sampled) spans->Export(ToSpan(end, reason));
}

}  // namespace tessera::rpc
