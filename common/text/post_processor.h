#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"

// The "post_processor" of tokenizer.json for one sequence: ids before and behind it. Supported:
// TemplateProcessing, ByteLevel (adds nothing), RobertaProcessing, BertProcessing, Sequence.
namespace tessera::text {

struct PostProcessor {
  std::vector<int32_t> before, behind;
};

// Nothing is added when the file has none. Fails with BAD_TOKENIZER or UNSUPPORTED_TOKENIZER.
absl::StatusOr<PostProcessor> ParsePostProcessor(const base::Json* json);

}  // namespace tessera::text
