#include "services/decode/template/strings.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/print.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

bool Holds(const Text& chars, uint32_t code) {
  for (size_t at = 0; at < chars.size();) {
    const Char character = CharAt(chars.view(), at);
    if (character.code == code) return true;
    at += character.bytes;
  }
  return false;
}

// The character that ends at `end`. REQUIRES: end > begin.
Char CharBefore(absl::string_view text, size_t begin, size_t end) {
  for (size_t at = end - 1;; --at) {
    const Char character = CharAt(text, at);
    if (at + character.bytes == end && (character.bytes > 1 || (text[at] & 0x80) == 0)) {
      return character;
    }
    if (at == begin || end - at >= 4) return {static_cast<uint8_t>(text[end - 1]), 1};
  }
}

}  // namespace

absl::StatusOr<Value> Strip(const Context& context, const Text& text, const Text* chars, bool left,
                            bool right) {
  const auto strips = [&](uint32_t code) {
    return chars == nullptr ? IsSpace(code) : Holds(*chars, code);
  };
  RETURN_IF_ERROR(context.budget.Steps(
      chars == nullptr ? 0 : static_cast<int64_t>(text.size() / 64 * (chars->size() + 1))));
  size_t begin = 0;
  size_t end = text.size();
  while (left && begin < end) {
    const Char character = CharAt(text.view(), begin);
    if (!strips(character.code)) break;
    begin += character.bytes;
  }
  while (right && end > begin) {
    const Char character = CharBefore(text.view(), begin, end);
    if (!strips(character.code)) break;
    end -= character.bytes;
  }
  return context.String(text.Sub(begin, end));
}

size_t FindPart(absl::string_view text, absl::string_view part, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return absl::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

int64_t CountParts(absl::string_view text, absl::string_view part) {
  if (part.empty()) return static_cast<int64_t>(CountChars(text)) + 1;
  int64_t count = 0;
  for (size_t at = FindPart(text, part, 0); at != absl::string_view::npos;
       at = FindPart(text, part, at + part.size())) {
    ++count;
  }
  return count;
}

absl::StatusOr<Value> Replace(const Context& context, const Text& text, const Text& from,
                              const Text& to, int64_t count) {
  Text out;
  size_t at = 0;
  // With an empty `from`, `to` goes before each character and to the end.
  for (int64_t done = 0; (count < 0 || done < count) && at <= text.size(); ++done) {
    const size_t found = from.empty() ? at : FindPart(text.view(), from.view(), at);
    if (found == absl::string_view::npos) break;
    RETURN_IF_ERROR(context.budget.Steps());
    RETURN_IF_ERROR(context.Append(&out, text, at, found));
    const bool users =
        from.empty() ? text.AnyUntrusted() : text.AnyUntrusted(found, found + from.size());
    RETURN_IF_ERROR(users ? context.Append(&out, to.view(), true) : context.Append(&out, to));
    at = found + from.size();
    if (!from.empty()) continue;
    if (at == text.size()) return context.String(std::move(out));
    const size_t next = at + CharAt(text.view(), at).bytes;
    RETURN_IF_ERROR(context.Append(&out, text, at, next));
    at = next;
  }
  RETURN_IF_ERROR(context.Append(&out, text, std::min(at, text.size()), text.size()));
  return context.String(std::move(out));
}

absl::StatusOr<Value> Join(const Context& context, const Value& items, const Text& separator,
                           bool strings_only) {
  const bool users = items.untrusted_shape();
  ASSIGN_OR_RETURN(const Items list, context.Iterate(items));
  Text out;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) {
      RETURN_IF_ERROR(users ? context.Append(&out, separator.view(), true)
                            : context.Append(&out, separator));
    }
    if (strings_only && !list[i].Is(Kind::kString)) {
      return Failure(absl::StrCat("join: expected str, found ", list[i].TypeName()));
    }
    RETURN_IF_ERROR(AppendStr(context, list[i], &out));
  }
  return context.String(std::move(out));
}

}  // namespace tessera::decode::jinja
