#include "services/decode/template/access.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

absl::Status IsUndefined(const Value& value) {
  return Failure(absl::StrCat(value.label(), " is undefined"));
}

Value Method(const Value& self, absl::string_view name) {
  auto method = std::make_shared<MethodObject>();
  method->depth = self.depth() + 1;
  method->weight = self.weight();
  method->self = self;
  method->name = std::string(name);
  return Value::FromObject(Kind::kMethod, std::move(method));
}

Value FieldOf(const Value& space, absl::string_view name) {
  for (const auto& [field, item] : static_cast<NamespaceObject*>(space.object())->fields) {
    if (field == name) return item;
  }
  return Value::Undefined(absl::StrCat("namespace field '", name, "'"));
}

// Where there is an attribute (in Python's sense): it.
absl::StatusOr<std::optional<Value>> OwnAttribute(const Value& value, absl::string_view name) {
  if (value.Is(Kind::kNamespace)) return FieldOf(value, name);
  if (HasMethod(value, name)) return Method(value, name);
  static constexpr absl::string_view kNumeric[] = {
      "real",       "imag",      "numerator", "denominator", "conjugate",  "as_integer_ratio",
      "bit_length", "bit_count", "to_bytes",  "from_bytes",  "is_integer", "hex",
      "fromhex"};
  const bool number = value.IsNumber() || value.Is(Kind::kBigInt);
  if (number && std::find(std::begin(kNumeric), std::end(kNumeric), name) != std::end(kNumeric)) {
    return Failure(absl::StrCat("attribute '", name, "' of a number is not supported"));
  }
  const bool callable =
      value.Is(Kind::kMacro) || value.Is(Kind::kFunction) || value.Is(Kind::kMethod);
  const bool odd = value.Is(Kind::kSequence) &&
                   (value.flavor() == Flavor::kGenerator || value.flavor() == Flavor::kView ||
                    value.flavor() == Flavor::kRange);
  if (callable || odd) {
    return Failure(
        absl::StrCat("attribute '", name, "' of a ", value.TypeName(), " is not supported"));
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<Value>> AtIndex(const Context& context, const Value& value,
                                             int64_t index) {
  if (value.Is(Kind::kString)) {
    const absl::string_view text = value.text().view();
    RETURN_IF_ERROR(context.budget.Steps(static_cast<int64_t>(text.size() / 64)));
    if (index < 0) index += static_cast<int64_t>(CountChars(text));
    size_t at = 0;
    for (; index > 0 && at < text.size(); --index) at += CharAt(text, at).bytes;
    if (index != 0 || at >= text.size()) return std::nullopt;
    ASSIGN_OR_RETURN(Value character,
                     context.String(value.text().Sub(at, at + CharAt(text, at).bytes)));
    return character;
  }
  const int64_t size = static_cast<int64_t>(value.items().size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return value.items()[static_cast<size_t>(index)];
}

// value[key] in Python's sense, nothing where it raises.
absl::StatusOr<std::optional<Value>> OwnItem(const Context& context, const Value& value,
                                             const Value& key) {
  const bool indexable = value.Is(Kind::kString) ||
                         (value.Is(Kind::kSequence) && value.flavor() != Flavor::kGenerator &&
                          value.flavor() != Flavor::kView);
  if (indexable && key.IsIntegral()) return AtIndex(context, value, key.integer());
  if (value.Is(Kind::kDict) && IsHashable(key)) {
    RETURN_IF_ERROR(context.budget.Steps(static_cast<int64_t>(value.entries().size() / 8)));
    const Value* item = key.Is(Kind::kString) ? value.Find(key.text().view()) : value.Find(key);
    if (item != nullptr) return *item;
  }
  return std::nullopt;
}

std::string KeyText(const Value& key) {
  if (key.Is(Kind::kString)) return absl::StrCat("'", key.text().bytes().substr(0, 40), "'");
  if (key.IsIntegral()) return absl::StrCat(key.integer());
  return "that key";
}

int64_t Clamp(int64_t index, int64_t size, bool forward) {
  if (index < 0) index += size;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  return std::min(std::max(index, low), high);
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Context& context, const Value& value,
                                   absl::string_view name) {
  if (value.Is(Kind::kUndefined)) return IsUndefined(value);
  ASSIGN_OR_RETURN(std::optional<Value> found, OwnAttribute(value, name));
  if (!found && value.Is(Kind::kDict)) {
    RETURN_IF_ERROR(context.budget.Steps(static_cast<int64_t>(value.entries().size() / 8)));
    if (const Value* item = value.Find(name); item != nullptr) return *item;
  }
  if (found) return *std::move(found);
  return Value::Undefined(absl::StrCat("'", name, "' of ", value.TypeName()));
}

absl::StatusOr<Value> GetItem(const Context& context, const Value& value, const Value& key) {
  if (value.Is(Kind::kUndefined)) return IsUndefined(value);
  ASSIGN_OR_RETURN(std::optional<Value> found, OwnItem(context, value, key));
  if (!found && key.Is(Kind::kString)) {
    ASSIGN_OR_RETURN(found, OwnAttribute(value, key.text().view()));
  }
  if (found) return *std::move(found);
  return Value::Undefined(absl::StrCat(KeyText(key), " of ", value.TypeName()));
}

absl::StatusOr<Value> GetSlice(const Context& context, const Value& value, const Slice& slice) {
  if (value.Is(Kind::kUndefined)) return IsUndefined(value);
  const bool text = value.Is(Kind::kString);
  const bool sequence = value.Is(Kind::kSequence) &&
                        (value.flavor() == Flavor::kList || value.flavor() == Flavor::kTuple);
  if (!text && !sequence) return Failure(absl::StrCat("cannot slice ", value.TypeName()));
  const int64_t step = slice.step.value_or(1);
  if (step == 0) return Failure("the step of a slice is zero");
  std::vector<size_t> starts;  // of each character, and the end
  for (size_t at = 0; text && at < value.text().size();) {
    starts.push_back(at);
    at += CharAt(value.text().view(), at).bytes;
  }
  RETURN_IF_ERROR(context.budget.Steps(static_cast<int64_t>(starts.size() / 16)));
  starts.push_back(text ? value.text().size() : 0);
  const int64_t size = static_cast<int64_t>(text ? starts.size() - 1 : value.items().size());
  const bool forward = step > 0;
  const int64_t start = slice.start ? Clamp(*slice.start, size, forward) : (forward ? 0 : size - 1);
  const int64_t stop = slice.stop ? Clamp(*slice.stop, size, forward) : (forward ? size : -1);
  if (text && step == 1) {
    const size_t begin = starts[static_cast<size_t>(std::min(start, size))];
    const size_t end = starts[static_cast<size_t>(std::max(std::min(start, size), stop))];
    return context.String(value.text().Sub(begin, end));
  }
  Text out;
  Items items;
  for (int64_t i = start; forward ? i < stop : i > stop;) {
    const size_t place = static_cast<size_t>(i);
    if (text) {
      RETURN_IF_ERROR(context.Append(&out, value.text(), starts[place], starts[place + 1]));
    } else {
      items.push_back(value.items()[place]);
    }
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (text) return context.String(std::move(out));
  ASSIGN_OR_RETURN(Value result, context.Sequence(value.flavor(), std::move(items)));
  return value.untrusted_shape() ? result.WithUntrustedShape() : result;
}

absl::StatusOr<Value> GetPath(const Context& context, const Value& value, const Value& path) {
  if (!path.Is(Kind::kString)) return GetItem(context, value, path);
  Value current = value;
  for (const absl::string_view part : absl::StrSplit(path.text().view(), '.')) {
    int64_t index = 0;
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
    const Value key =
        digits && absl::SimpleAtoi(part, &index) ? Value::Int(index) : Value::String(part);
    ASSIGN_OR_RETURN(current, GetItem(context, current, key));
  }
  return current;
}

}  // namespace tessera::decode::jinja
