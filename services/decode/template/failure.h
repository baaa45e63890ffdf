#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// The two ways in which a template ends badly.
namespace tessera::decode::jinja {

// TEMPLATE_FAILED: it cannot be rendered (syntax, types, limits, an unknown construct).
absl::Status Failure(absl::string_view message);
// TEMPLATE_FAILED, with "line N: " in front of the message.
absl::Status FailureAt(int line, absl::string_view message);
// TEMPLATE_RAISED: the template called raise_exception; the message is the
// template's own, 500 bytes of it at most.
absl::Status Raised(absl::string_view message);

// `status` with the line in front, unless it names one already or the template raised it.
absl::Status AtLine(const absl::Status& status, int line);

}  // namespace tessera::decode::jinja
