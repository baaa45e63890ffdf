#include "common/rpc/trace/otlp.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"

namespace tessera::rpc {
namespace {

namespace common = opentelemetry::proto::common::v1;
namespace trace = opentelemetry::proto::trace::v1;
using opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

constexpr uint32_t kSampledFlag = 1;

uint64_t Nanos(absl::Time time) {
  return static_cast<uint64_t>(std::max<int64_t>(0, absl::ToUnixNanos(time)));
}

void SetAttribute(absl::string_view key, const Span::Attribute& value, common::KeyValue& to) {
  to.set_key(std::string(key));
  struct {
    common::AnyValue& to;
    void operator()(const std::string& text) const { to.set_string_value(text); }
    void operator()(int64_t number) const { to.set_int_value(number); }
    void operator()(double number) const { to.set_double_value(number); }
    void operator()(bool truth) const { to.set_bool_value(truth); }
  } visitor{*to.mutable_value()};
  std::visit(visitor, value);
}

void SetTimes(absl::Time start, absl::Time end, trace::Span& to) {
  to.set_start_time_unix_nano(Nanos(start));
  to.set_end_time_unix_nano(Nanos(std::max(start, end)));
}

// The fault of a caller is no error of the service: the conventions for servers.
bool IsFault(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

void AddSpan(const Span& span, trace::ScopeSpans& scope) {
  trace::Span& to = *scope.add_spans();
  to.set_trace_id(span.trace.trace_id);
  to.set_span_id(span.trace.span_id);
  to.set_parent_span_id(span.trace.parent_id);
  to.set_flags(kSampledFlag);
  to.set_name(span.name);
  to.set_kind(trace::Span::SPAN_KIND_SERVER);
  SetTimes(span.start, span.end, to);
  for (const auto& [key, value] : span.attributes) SetAttribute(key, value, *to.add_attributes());
  for (const auto& [name, time] : span.events) {
    trace::Span::Event& event = *to.add_events();
    event.set_name(name);
    event.set_time_unix_nano(Nanos(time));
  }
  if (IsFault(span.code)) {
    to.mutable_status()->set_code(trace::Status::STATUS_CODE_ERROR);
    to.mutable_status()->set_message(span.error);
  }
  for (const SpanStage& stage : span.stages) {
    trace::Span& child = *scope.add_spans();
    child.set_trace_id(span.trace.trace_id);
    child.set_span_id(NewSpanId());
    child.set_parent_span_id(span.trace.span_id);
    child.set_flags(kSampledFlag);
    child.set_name(stage.name);
    child.set_kind(trace::Span::SPAN_KIND_INTERNAL);
    SetTimes(stage.start, stage.end, child);
  }
}

}  // namespace

ExportTraceServiceRequest ToOtlp(absl::Span<const Span> spans, absl::string_view version,
                                 absl::string_view model) {
  ExportTraceServiceRequest request;
  std::map<std::string, trace::ScopeSpans*> scopes;
  for (const Span& span : spans) {
    trace::ScopeSpans*& scope = scopes[span.service];
    if (scope == nullptr) {
      trace::ResourceSpans& resource = *request.add_resource_spans();
      auto& facts = *resource.mutable_resource()->mutable_attributes();
      SetAttribute("service.name", absl::StrCat("tessera-", span.service), *facts.Add());
      SetAttribute("service.namespace", std::string("tessera"), *facts.Add());
      SetAttribute("service.version", std::string(version), *facts.Add());
      SetAttribute("tessera.model", std::string(model), *facts.Add());
      scope = resource.add_scope_spans();
      scope->mutable_scope()->set_name("tessera");
      scope->mutable_scope()->set_version(std::string(version));
    }
    AddSpan(span, *scope);
  }
  return request;
}

}  // namespace tessera::rpc
