#include "services/decode/template/message_value.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"

namespace tessera::decode {
namespace {

using jinja::Value;

// Neighbouring texts in one part.
std::vector<Part> Merged(absl::Span<const Part> parts) {
  std::vector<Part> merged;
  for (const Part& part : parts) {
    if (part.kind == Part::kText && !merged.empty() && merged.back().kind == Part::kText) {
      merged.back().text += part.text;
    } else {
      merged.push_back(part);
    }
  }
  return merged;
}

size_t CountOf(absl::Span<const Part> parts, Part::Kind kind) {
  return static_cast<size_t>(std::count_if(parts.begin(), parts.end(),
                                           [kind](const Part& part) { return part.kind == kind; }));
}

absl::StatusOr<Value> ListFor(const Message& message, const RoleForm& form,
                              absl::string_view place) {
  if (form.many_texts) return ListContent(message.parts);
  const std::vector<Part> merged = Merged(message.parts);
  if (CountOf(merged, Part::kText) > 1) {
    return base::BadField(
        absl::StrCat(place, ".parts"), "BAD_MESSAGES",
        absl::StrCat(place, ": the model's chat template shows one text per ", "message of role '",
                     form.role, "': put pictures before it or after it"));
  }
  return ListContent(merged);
}

}  // namespace

Value StringContent(absl::Span<const Part> parts) {
  jinja::Text text;
  for (const Part& part : parts) text.Append(part.text, true);
  return Value::String(std::move(text));
}

Value ListContent(absl::Span<const Part> parts) {
  jinja::Items items;
  for (const Part& part : parts) {
    jinja::Entries entries = {
        {Value::String("type"), Value::String(part.kind == Part::kImage ? "image" : "text")}};
    if (part.kind == Part::kText) {
      entries.emplace_back(Value::String("text"), Value::String(part.text, true));
    }
    items.push_back(Value::Dict(std::move(entries)));
  }
  return Value::List(std::move(items));
}

Value RoleAndContent(absl::string_view role, Value content) {
  return Value::Dict({{Value::String("role"), Value::String(role)},
                      {Value::String("content"), std::move(content)}});
}

absl::StatusOr<Value> MessageValue(const Message& message, const RoleForm& form,
                                   absl::string_view place) {
  for (size_t i = 0; i < message.parts.size(); ++i) {
    if (absl::Status status = text::ValidateUtf8(message.parts[i].text); !status.ok()) {
      const std::string field = absl::StrCat(place, ".parts[", i, "].text");
      return base::WithField(base::Annotate(status, field), field);
    }
  }
  const bool pictures = CountOf(message.parts, Part::kImage) > 0;
  Value content = StringContent(message.parts);
  if (pictures || !form.as_string) {
    ASSIGN_OR_RETURN(content, ListFor(message, form, place));
  }
  return RoleAndContent(form.role, std::move(content));
}

}  // namespace tessera::decode
