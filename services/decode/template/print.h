#pragma once

#include "absl/status/status.h"
#include "services/decode/template/value.h"

// How Python writes values. Characters keep who wrote them; quotes, brackets and commas are the
// template's, an escape has the owner of the character that it stands for.
namespace tessera::decode::jinja {

// str(): what {{ value }} prints. Failure for what has no stable text (a macro, a generator).
absl::Status AppendStr(const Context& context, const Value& value, Text* out);
absl::StatusOr<Text> Str(const Context& context, const Value& value);

// repr(), as inside a printed list.
absl::Status AppendRepr(const Context& context, const Value& value, Text* out);

// The shortest decimal that reads back as `value`, in Python's form: 1.0, 1e+16, 1e-05, inf.
std::string FloatText(double value);

struct JsonStyle {
  int indent = -1;  // spaces per level; negative: all on one line
  bool sort_keys = false;
  bool ascii = false;
};
// json.dumps(): tuples as lists, keys as text.
absl::Status AppendJson(const Context& context, const Value& value, const JsonStyle& style,
                        Text* out);

}  // namespace tessera::decode::jinja
