#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/ast.h"
#include "services/decode/template/limits.h"

namespace tessera::decode::jinja {

// The statements of a template. Failure with the line: syntax, nesting beyond the limit, and any
// tag, filter or test that this interpreter does not know, by name.
absl::StatusOr<Block> Parse(absl::string_view source, const Limits& limits);

}  // namespace tessera::decode::jinja
