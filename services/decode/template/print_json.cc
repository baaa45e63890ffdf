#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/print.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

std::string EscapeOf(uint32_t code, bool ascii) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
  }
  if (code >= 0x20 && (!ascii || code < 0x7f)) return "";
  if (code == 0x7f) return "";
  if (code < 0x10000) return absl::StrFormat("\\u%04x", code);
  const uint32_t rest = code - 0x10000;
  return absl::StrFormat("\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
}

class JsonPrinter {
 public:
  JsonPrinter(const Context& context, const JsonStyle& style, Text* out)
      : context_(context), style_(style), out_(out) {}

  absl::Status Print(const Value& value, int level) {
    RETURN_IF_ERROR(context_.budget.Steps());
    switch (value.kind()) {
      case Kind::kNone:
        return context_.Append(out_, "null");
      case Kind::kBool:
        return context_.Append(out_, value.boolean() ? "true" : "false");
      case Kind::kFloat:
        return context_.Append(out_, Float(value.real()), value.untrusted());
      case Kind::kInt:
      case Kind::kBigInt:
        return AppendStr(context_, value, out_);
      case Kind::kString:
        return PrintString(value.text());
      case Kind::kDict:
        return PrintDict(value, level);
      case Kind::kSequence:
        if (value.flavor() == Flavor::kList || value.flavor() == Flavor::kTuple) {
          return PrintList(value.items(), level);
        }
        [[fallthrough]];
      default:
        return Failure(absl::StrCat("tojson cannot write ", value.TypeName()));
    }
  }

 private:
  static std::string Float(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return FloatText(value);
  }

  absl::Status PrintString(const Text& text) {
    RETURN_IF_ERROR(context_.Append(out_, "\""));
    size_t plain = 0;
    for (size_t at = 0; at < text.size();) {
      const Char character = CharAt(text.view(), at);
      const std::string escape = EscapeOf(character.code, style_.ascii);
      if (!escape.empty()) {
        RETURN_IF_ERROR(context_.Append(out_, text, plain, at));
        RETURN_IF_ERROR(context_.Append(out_, escape, text.AnyUntrusted(at, at + 1)));
        plain = at + character.bytes;
      }
      at += character.bytes;
    }
    RETURN_IF_ERROR(context_.Append(out_, text, plain, text.size()));
    return context_.Append(out_, "\"");
  }

  absl::Status NewLine(int level) {
    if (style_.indent < 0) return absl::OkStatus();
    return context_.Append(out_, absl::StrCat("\n", std::string(level * style_.indent, ' ')));
  }

  absl::Status Comma(size_t place, int level) {
    if (place > 0) RETURN_IF_ERROR(context_.Append(out_, style_.indent < 0 ? ", " : ","));
    return NewLine(level);
  }

  absl::Status PrintList(const Items& items, int level) {
    if (items.empty()) return context_.Append(out_, "[]");
    RETURN_IF_ERROR(context_.Append(out_, "["));
    for (size_t i = 0; i < items.size(); ++i) {
      RETURN_IF_ERROR(Comma(i, level + 1));
      RETURN_IF_ERROR(Print(items[i], level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    return context_.Append(out_, "]");
  }

  absl::Status PrintKey(const Value& key) {
    if (key.Is(Kind::kString)) return PrintString(key.text());
    if (!key.IsNumber() && !key.Is(Kind::kNone) && !key.Is(Kind::kBigInt)) {
      return Failure(absl::StrCat("tojson cannot write a key of type ", key.TypeName()));
    }
    RETURN_IF_ERROR(context_.Append(out_, "\""));
    RETURN_IF_ERROR(Print(key, 0));
    return context_.Append(out_, "\"");
  }

  absl::Status PrintDict(const Value& value, int level) {
    if (value.entries().empty()) return context_.Append(out_, "{}");
    Entries entries = value.entries();
    if (style_.sort_keys) RETURN_IF_ERROR(Sort(&entries));
    RETURN_IF_ERROR(context_.Append(out_, "{"));
    for (size_t i = 0; i < entries.size(); ++i) {
      RETURN_IF_ERROR(Comma(i, level + 1));
      RETURN_IF_ERROR(PrintKey(entries[i].first));
      RETURN_IF_ERROR(context_.Append(out_, ": "));
      RETURN_IF_ERROR(Print(entries[i].second, level + 1));
    }
    RETURN_IF_ERROR(NewLine(level));
    return context_.Append(out_, "}");
  }

  static absl::Status Sort(Entries* entries) {
    for (const auto& [key, item] : *entries) {
      if (!key.Is(Kind::kString)) return Failure("tojson sorts text keys only");
    }
    std::stable_sort(entries->begin(), entries->end(), [](const auto& a, const auto& b) {
      return a.first.text().bytes() < b.first.text().bytes();
    });
    return absl::OkStatus();
  }

  const Context& context_;
  const JsonStyle& style_;
  Text* const out_;
};

}  // namespace

absl::Status AppendJson(const Context& context, const Value& value, const JsonStyle& style,
                        Text* out) {
  return JsonPrinter(context, style, out).Print(value, 0);
}

}  // namespace tessera::decode::jinja
