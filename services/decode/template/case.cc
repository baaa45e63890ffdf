#include "common/base/status_macros.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

constexpr uint32_t kSigma = 0x3a3;

// Characters between a letter and a sigma that do not count (the common part of Unicode's
// Case_Ignorable).
bool IsIgnorable(uint32_t code) {
  return code == '\'' || code == '.' || code == ':' || code == '^' || code == '`' || code == 0xa8 ||
         code == 0xad || code == 0xaf || code == 0xb4 || code == 0xb7 || code == 0xb8 ||
         (code >= 0x300 && code < 0x370) || code == 0x2019 || (code >= 0x200b && code < 0x2010);
}

// Appends characters of one text, mapped.
class CaseWriter {
 public:
  CaseWriter(const Context& context, const Text& text) : context_(context), text_(text) {}

  absl::Status Write(size_t at, const Char& character, CaseMap map) {
    std::string mapped = map(character.code);
    if (character.code == kSigma && map == LowerOf && IsFinalSigma(at)) mapped = LowerOf(0x3c2);
    const bool users = text_.AnyUntrusted(at, at + character.bytes);
    if (IsCased(character.code))
      before_ = true;
    else if (!IsIgnorable(character.code))
      before_ = false;
    return context_.Append(&out_, mapped, users);
  }
  // What came before does not count any more.
  void Restart() { before_ = false; }
  absl::StatusOr<Value> Take() { return context_.String(std::move(out_)); }

 private:
  bool IsFinalSigma(size_t at) const {
    if (!before_) return false;
    for (at += 2; at < text_.size();) {
      const Char character = CharAt(text_.view(), at);
      if (!IsIgnorable(character.code)) return !IsCased(character.code);
      at += character.bytes;
    }
    return true;
  }

  const Context& context_;
  const Text& text_;
  bool before_ = false;  // a cased letter came last
  Text out_;
};

bool SplitsWords(uint32_t code) {
  return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || IsSpace(code);
}

}  // namespace

absl::StatusOr<Value> MapCase(const Context& context, const Text& text, CaseMap map) {
  CaseWriter writer(context, text);
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    RETURN_IF_ERROR(writer.Write(at, character, map));
    at += character.bytes;
  }
  return writer.Take();
}

absl::StatusOr<Value> Lower(const Context& context, const Text& text) {
  return MapCase(context, text, LowerOf);
}

absl::StatusOr<Value> Capitalize(const Context& context, const Text& text) {
  CaseWriter writer(context, text);
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    RETURN_IF_ERROR(writer.Write(at, character, at == 0 ? TitleOf : LowerOf));
    at += character.bytes;
  }
  return writer.Take();
}

absl::StatusOr<Value> TitleMethod(const Context& context, const Text& text) {
  CaseWriter writer(context, text);
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    RETURN_IF_ERROR(writer.Write(at, character, inside ? LowerOf : TitleOf));
    inside = IsCased(character.code);
    at += character.bytes;
  }
  return writer.Take();
}

absl::StatusOr<Value> TitleFilter(const Context& context, const Text& text) {
  CaseWriter writer(context, text);
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    RETURN_IF_ERROR(writer.Write(at, character, inside ? LowerOf : UpperOf));
    if (!inside) writer.Restart();  // Jinja lowers what follows the first letter by itself
    inside = !SplitsWords(character.code);
    at += character.bytes;
  }
  return writer.Take();
}

}  // namespace tessera::decode::jinja
