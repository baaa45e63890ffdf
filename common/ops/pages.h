#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/ops/handlers.h"

namespace tessera::ops {

struct Page {
  int status = 200;  // of HTTP
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// The page at a request's target, whose query is ignored:
//   /metrics      Prometheus' text form
//   /healthz      200 "ok", or 503 with the reasons
//   /readyz       200 or 503, a line for each condition
//   /debug/state  JSON, one key for each provider
// Else 404. Pure but for the handlers.
Page PageAt(absl::string_view target, const Handlers& handlers);

}  // namespace tessera::ops
