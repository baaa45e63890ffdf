#pragma once

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Split regexes: the only door to PCRE2. Patterns are written for Oniguruma (Ruby syntax), as
// tokenizer.json has them; regex_syntax.cc translates what differs and refuses the rest.
namespace tessera::text {

class Regex {
 public:
  // Fails with BAD_TOKENIZER or UNSUPPORTED_TOKENIZER, naming `path`.
  static absl::StatusOr<std::unique_ptr<Regex>> Compile(absl::string_view pattern,
                                                        absl::string_view path);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Every match from left to right, without overlaps, as byte offsets; may be empty. Any thread;
  // the stack used does not grow with the text. RESOURCE_EXHAUSTED (REGEX_LIMIT) when the pattern
  // backtracks beyond the limits. REQUIRES: text is valid UTF-8.
  absl::Status ForEachMatch(absl::string_view text,
                            absl::FunctionRef<void(size_t begin, size_t end)> visit) const;

 private:
  struct Code;
  Regex(std::unique_ptr<Code> code, std::string pattern);
  std::unique_ptr<Code> code_;
  std::string pattern_;  // for messages
};

// The pattern in PCRE2's syntax with explicit Unicode classes, e.g. \s as White_Space has it.
absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern, absl::string_view path);

}  // namespace tessera::text
