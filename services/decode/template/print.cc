#include "services/decode/template/print.h"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

std::string EscapeOf(uint32_t code, char quote) {
  switch (code) {
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\\':
      return "\\\\";
  }
  if (code == static_cast<uint32_t>(quote)) return {'\\', quote};
  if (IsPrintable(code)) return "";
  if (code < 0x100) return absl::StrFormat("\\x%02x", code);
  return code < 0x10000 ? absl::StrFormat("\\u%04x", code) : absl::StrFormat("\\U%08x", code);
}

absl::Status AppendQuoted(const Context& context, const Text& text, Text* out) {
  const bool single = text.bytes().find('\'') != std::string::npos;
  const bool twice = text.bytes().find('"') != std::string::npos;
  const char quote = single && !twice ? '"' : '\'';
  const absl::string_view mark(&quote, 1);
  RETURN_IF_ERROR(context.Append(out, mark));
  size_t plain = 0;  // what is not copied yet
  for (size_t at = 0; at < text.size();) {
    const Char character = CharAt(text.view(), at);
    const std::string escape = EscapeOf(character.code, quote);
    if (!escape.empty()) {
      RETURN_IF_ERROR(context.Append(out, text, plain, at));
      RETURN_IF_ERROR(context.Append(out, escape, text.AnyUntrusted(at, at + 1)));
      plain = at + character.bytes;
    }
    at += character.bytes;
  }
  RETURN_IF_ERROR(context.Append(out, text, plain, text.size()));
  return context.Append(out, mark);
}

absl::Status AppendItems(const Context& context, const Items& items, Text* out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(context.Append(out, ", "));
    RETURN_IF_ERROR(AppendRepr(context, items[i], out));
  }
  return absl::OkStatus();
}

absl::Status AppendSequence(const Context& context, const Value& value, Text* out) {
  switch (value.flavor()) {
    case Flavor::kRange:
      return context.Append(out, value.label());
    case Flavor::kGenerator:
      return Failure("a generator has no text: use | list or | join");
    case Flavor::kView:
      RETURN_IF_ERROR(context.Append(out, absl::StrCat(value.label(), "([")));
      RETURN_IF_ERROR(AppendItems(context, value.items(), out));
      return context.Append(out, "])");
    case Flavor::kTuple:
      RETURN_IF_ERROR(context.Append(out, "("));
      RETURN_IF_ERROR(AppendItems(context, value.items(), out));
      return context.Append(out, value.items().size() == 1 ? ",)" : ")");
    case Flavor::kList:
      break;
  }
  RETURN_IF_ERROR(context.Append(out, "["));
  RETURN_IF_ERROR(AppendItems(context, value.items(), out));
  return context.Append(out, "]");
}

absl::Status AppendDict(const Context& context, const Value& value, Text* out) {
  RETURN_IF_ERROR(context.Append(out, "{"));
  for (size_t i = 0; i < value.entries().size(); ++i) {
    if (i > 0) RETURN_IF_ERROR(context.Append(out, ", "));
    RETURN_IF_ERROR(AppendRepr(context, value.entries()[i].first, out));
    RETURN_IF_ERROR(context.Append(out, ": "));
    RETURN_IF_ERROR(AppendRepr(context, value.entries()[i].second, out));
  }
  return context.Append(out, "}");
}

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, end.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) {
    const int size = std::abs(exponent);
    return absl::StrCat(text.substr(0, e), exponent < 0 ? "e-" : "e+", size < 10 ? "0" : "", size);
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

absl::Status AppendStr(const Context& context, const Value& value, Text* out) {
  RETURN_IF_ERROR(context.budget.Steps());
  switch (value.kind()) {
    case Kind::kUndefined:
      return absl::OkStatus();
    case Kind::kNone:
      return context.Append(out, "None");
    case Kind::kBool:
      return context.Append(out, value.boolean() ? "True" : "False");
    case Kind::kInt:
      return context.Append(out, absl::StrCat(value.integer()), value.untrusted());
    case Kind::kFloat:
      return context.Append(out, FloatText(value.real()), value.untrusted());
    case Kind::kString:
    case Kind::kBigInt:
      return context.Append(out, value.text());
    case Kind::kSequence:
      return AppendSequence(context, value, out);
    case Kind::kDict:
      return AppendDict(context, value, out);
    default:
      return Failure(absl::StrCat("a ", value.TypeName(), " has no text"));
  }
}

absl::StatusOr<Text> Str(const Context& context, const Value& value) {
  Text text;
  RETURN_IF_ERROR(AppendStr(context, value, &text));
  return text;
}

absl::Status AppendRepr(const Context& context, const Value& value, Text* out) {
  if (value.Is(Kind::kString)) return AppendQuoted(context, value.text(), out);
  if (value.Is(Kind::kUndefined)) return context.Append(out, "Undefined");
  return AppendStr(context, value, out);
}

}  // namespace tessera::decode::jinja
