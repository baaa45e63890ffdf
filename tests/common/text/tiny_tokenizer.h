#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/text/tokenizer.h"

// Small tokenizer files that tests bend.
namespace tessera::text {

// Byte-level BPE: id = byte, then what each "a b" of `merges` makes. No regex, no normalizer.
base::Json TinyByteLevel(const std::vector<std::string>& merges = {});

// SentencePiece-like: <unk> 0, <s> 1, </s> 2, byte tokens from 3 on, U+2581, a to z, then merges.
base::Json TinyMetaspace(const std::vector<std::string>& merges = {});

// Appends an added token (with the id of the vocabulary when it is there) and returns its id.
// `flags` overrides members of the entry.
int32_t AddToken(const std::string& content, const base::Json& flags, base::Json* file);

absl::StatusOr<std::unique_ptr<Tokenizer>> TryMake(const base::Json& file);
std::unique_ptr<Tokenizer> Make(const base::Json& file);  // fails the test on an error

// A text built from parts, each by the template or by a user.
struct Prompt {
  std::string text;
  std::vector<ByteRange> untrusted;

  Prompt& Template(const std::string& part);
  Prompt& User(const std::string& part);
};

std::vector<int32_t> Encode(const Tokenizer& tokenizer, const std::string& text);
std::vector<int32_t> Encode(const Tokenizer& tokenizer, const Prompt& prompt,
                            std::vector<int32_t> control_ids);

}  // namespace tessera::text
