#pragma once

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/rpc/trace/span.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"

namespace tessera::rpc {

// Spans as OTLP has them, by service, each stage a span below its own. `version` and `model` are
// those of all services. Pure but for the ids of stages.
opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest ToOtlp(
    absl::Span<const Span> spans, absl::string_view version, absl::string_view model);

}  // namespace tessera::rpc
