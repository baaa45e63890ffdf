#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

// The "decoder" of tokenizer.json. Supported: ByteLevel; Metaspace; a Sequence of, in this order,
// Replace (of strings) or Metaspace, ByteFallback, Fuse, Strip (at the start).
namespace tessera::text {

class Fields;

// What one token adds to the text: bytes that may be parts of characters.
struct TokenBytes {
  std::string bytes;
  bool is_byte = false;  // a byte token such as "<0x0A>"
};

class Decoder {
 public:
  static absl::StatusOr<Decoder> Parse(const base::Json* json);

  // `first`: no token of the text came before.
  TokenBytes BytesOf(absl::string_view token, bool first) const;

  // Up to `strip_count` of `strip_char` (UTF-8) are dropped where the text starts.
  int strip_count() const { return strip_count_; }
  const std::string& strip_char() const { return strip_char_; }

 private:
  Decoder() = default;
  absl::Status AddStep(const base::Json& json, absl::string_view path);
  absl::Status AddReplace(const Fields& fields);
  absl::Status AddMetaspace(const Fields& fields);
  absl::Status AddStrip(const Fields& fields);

  int stage_ = 0;  // while reading: the order above
  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fused_ = false;
  std::vector<std::pair<std::string, std::string>> replacements_;
  std::string metaspace_;               // empty: none
  bool metaspace_drops_first_ = false;  // marks in the first token are dropped
  std::string strip_char_;
  int strip_count_ = 0;
};

// The text of all tokens at once, as the library has it: a run of byte tokens that is not valid as
// a whole becomes one U+FFFD per byte.
class BatchDecode {
 public:
  explicit BatchDecode(const Decoder& decoder) : decoder_(decoder) {}
  void Add(absl::string_view token);
  std::string Finish();

 private:
  void EndRun();

  const Decoder& decoder_;
  bool first_ = true;
  std::string run_;   // bytes of byte tokens
  std::string text_;  // may hold parts of characters (ByteLevel)
};

}  // namespace tessera::text
