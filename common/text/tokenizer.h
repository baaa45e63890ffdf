#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/json.h"
#include "common/text/added_tokens.h"
#include "common/text/decoder.h"
#include "common/text/marked_text.h"
#include "common/text/utf8.h"

// Tokenizers of tokenizer.json files: text to ids and back. No model knowledge.
namespace tessera::text {

struct TokenizerParts;

struct EncodeOptions {
  bool parse_special = true;              // false: special tokens in the text are plain text
  absl::Span<const ByteRange> untrusted;  // sorted, disjoint: bytes that a user wrote
  // Sorted: ids that untrusted bytes never become. Added tokens that touch such a byte and merges,
  // whole words and byte tokens that cover one are refused; the text stays plain and is tokenized
  // together with its neighbours. Two things remain: the unknown token where it stands for unknown
  // characters, and white space beside a trusted token with lstrip or rstrip, which is swallowed.
  absl::Span<const int32_t> control_ids;
};

// Immutable after loading; any thread.
class Tokenizer {
 public:
  // Reads tokenizer.json of a model directory, and the added tokens that only its
  // tokenizer_config.json names. NOT_FOUND without a tokenizer; UNIMPLEMENTED (reason
  // UNSUPPORTED_TOKENIZER) for a type that is not supported, with its name and what is;
  // INVALID_ARGUMENT (BAD_TOKENIZER) for a malformed file, with the path of the value.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& model_dir);
  // `origin` is named in errors.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(absl::string_view tokenizer_json,
                                                             const std::string& origin);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Ids without begin or end token. n log n in the bytes of the text, bounded stack.
  // INVALID_ARGUMENT: INVALID_UTF8 with the offset of the first bad byte; TEXT_TOO_LONG.
  // RESOURCE_EXHAUSTED: REGEX_LIMIT. REQUIRES: ranges sorted, disjoint and within the text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options) const;

  // What the file's post-processor makes of one sequence, e.g. with a begin token.
  std::vector<int32_t> AddSpecial(std::vector<int32_t> ids) const;

  // Valid UTF-8 whatever the ids; ids without a token add nothing.
  std::string Decode(absl::Span<const int32_t> ids, bool skip_special) const;

  // What the token adds in the midst of a text: bytes, not always whole characters. Empty for an id
  // without a token.
  std::string BytesOf(int32_t id) const;

  std::optional<int32_t> IdOf(absl::string_view token) const;
  // The token as the file writes it; empty for an id without one.
  std::string TokenOf(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  std::vector<int32_t> special_ids() const;  // sorted
  const std::vector<AddedToken>& added_tokens() const;
  int32_t vocab_size() const;  // largest id + 1

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<TokenizerParts> parts);
  // `config`: tokenizer_config.json, or nullptr.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromParsed(const base::Json& json,
                                                               const base::Json* config);
  const Decoder& decoder() const;
  // Empty for an id without a token; valid while the tokenizer lives.
  absl::string_view TokenView(int32_t id) const;

  std::unique_ptr<TokenizerParts> parts_;
};

// Text that may be sent after each id: whole characters only, special tokens skipped. All pieces
// and the flush together equal Decode(ids, true), except for bytes that are no UTF-8: each maximal
// bad part becomes one U+FFFD at once. One per sequence, one thread; holds at most three bytes.
class StreamDecoder {
 public:
  // `context`: ids before the first one, whose text is not sent. Borrows the tokenizer.
  explicit StreamDecoder(const Tokenizer& tokenizer, absl::Span<const int32_t> context = {});

  std::string Add(int32_t id);
  std::string Flush();  // at the end: what was held back, as U+FFFD

 private:
  std::string Strip(std::string text);

  const Tokenizer& tokenizer_;
  bool first_ = true;  // no token yet
  int strip_left_;     // characters that may still be dropped at the start
  Utf8Repair repair_;
};

}  // namespace tessera::text
