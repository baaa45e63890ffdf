#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "common/text/marked_text.h"

// The "normalizer" of tokenizer.json: Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip.
namespace tessera::text {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // The normal form of one section of text, marks carried along: a byte made from several
  // characters is untrusted when one of them is. Any thread.
  virtual absl::StatusOr<MarkedText> Normalize(const MarkedView& text) const = 0;
};

// nullptr when the file has none. Fails with BAD_TOKENIZER or UNSUPPORTED_TOKENIZER.
absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const base::Json* json,
                                                            absl::string_view path);

}  // namespace tessera::text
