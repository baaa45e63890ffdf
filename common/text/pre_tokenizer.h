#pragma once

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/text/marked_text.h"

// The "pre_tokenizer" of tokenizer.json: Sequence, ByteLevel, Split, Metaspace, Digits.
namespace tessera::text {

using WordSink = absl::FunctionRef<absl::Status(const MarkedView& word)>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Hands the words of one section to `sink`, in order; stops at its first error. Words live only
  // until `sink` returns. Any thread.
  virtual absl::Status Run(const MarkedView& text, WordSink sink) const = 0;
};

// nullptr when the file has none: each section is one word. Fails with BAD_TOKENIZER or
// UNSUPPORTED_TOKENIZER.
absl::StatusOr<std::unique_ptr<PreTokenizer>> ParsePreTokenizer(const base::Json* json,
                                                                absl::string_view path);

}  // namespace tessera::text
