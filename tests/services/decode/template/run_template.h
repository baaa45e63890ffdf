#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/decode/template/interpreter.h"
#include "services/decode/template/parser.h"

namespace tessera::decode::jinja {

// Parses and renders at once.
inline absl::StatusOr<Text> RunTemplate(absl::string_view source, const Globals& globals = {},
                                        const Limits& limits = {}) {
  absl::StatusOr<Block> block = Parse(source, limits);
  if (!block.ok()) return block.status();
  return Interpreter(limits).Render(*block, globals);
}

}  // namespace tessera::decode::jinja
