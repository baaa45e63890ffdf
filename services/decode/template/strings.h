#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/decode/template/value.h"

// Python's string functions. Every character of a result belongs to whom its source belonged;
// what replaces a user's text is the user's.
namespace tessera::decode::jinja {

using CaseMap = std::string (*)(uint32_t code);

absl::StatusOr<Value> MapCase(const Context& context, const Text& text, CaseMap map);
absl::StatusOr<Value> Lower(const Context& context, const Text& text);  // knows the final sigma
absl::StatusOr<Value> Capitalize(const Context& context, const Text& text);
absl::StatusOr<Value> TitleMethod(const Context& context, const Text& text);  // 'x'.title()
absl::StatusOr<Value> TitleFilter(const Context& context, const Text& text);  // 'x' | title

// strip: `chars` null means white space.
absl::StatusOr<Value> Strip(const Context& context, const Text& text, const Text* chars, bool left,
                            bool right);
// Where `part` starts in `text` at or after `from`; npos when nowhere. Linear time.
size_t FindPart(absl::string_view text, absl::string_view part, size_t from);
int64_t CountParts(absl::string_view text, absl::string_view part);
// count < 0: all.
absl::StatusOr<Value> Replace(const Context& context, const Text& text, const Text& from,
                              const Text& to, int64_t count);
// separator null: runs of white space. max_splits < 0: all. `from_right` is rsplit.
absl::StatusOr<Value> Split(const Context& context, const Text& text, const Text* separator,
                            int64_t max_splits, bool from_right);
absl::StatusOr<Items> SplitLines(const Context& context, const Text& text, bool keep_ends);
// Items are printed with str(). The separator is a user's where a user chose how many items there
// are (split() on a message).
absl::StatusOr<Value> Join(const Context& context, const Value& items, const Text& separator,
                           bool strings_only);
// '{} {0} {name}'.format(...), without format specifications.
absl::StatusOr<Value> FormatBraces(const Context& context, const Text& pattern,
                                   const Items& positional,
                                   const std::vector<std::pair<std::string, Value>>& keywords);

}  // namespace tessera::decode::jinja
