#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"
#include "services/decode/template/value.h"

namespace tessera::decode::jinja {
namespace {

bool SameItems(const Items& a, const Items& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Equals);
}

bool SameEntries(const Value& a, const Value& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, item] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equals(item, *other)) return false;
  }
  return true;
}

}  // namespace

bool Equals(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) return a.real() == b.real();
    return a.integer() == b.integer();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBigInt:
      return a.text().bytes() == b.text().bytes();
    case Kind::kSequence:
      if (a.shared() == b.shared()) return true;
      if (a.flavor() != b.flavor() || a.flavor() == Flavor::kGenerator) return false;
      return SameItems(a.items(), b.items());
    case Kind::kDict:
      return SameEntries(a, b);
    case Kind::kFunction:
      return a.label() == b.label();
    default:
      return a.shared() == b.shared();
  }
}

absl::StatusOr<bool> Less(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.Is(Kind::kFloat) || b.Is(Kind::kFloat)) return a.real() < b.real();
    return a.integer() < b.integer();
  }
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    return a.text().bytes() < b.text().bytes();  // UTF-8 sorts as its code points do
  }
  const bool sequences = a.Is(Kind::kSequence) && b.Is(Kind::kSequence) &&
                         a.flavor() == b.flavor() &&
                         (a.flavor() == Flavor::kList || a.flavor() == Flavor::kTuple);
  if (!sequences) {
    return Failure(absl::StrCat("cannot order ", a.TypeName(), " and ", b.TypeName()));
  }
  for (size_t i = 0; i < std::min(a.items().size(), b.items().size()); ++i) {
    if (!Equals(a.items()[i], b.items()[i])) return Less(a.items()[i], b.items()[i]);
  }
  return a.items().size() < b.items().size();
}

bool IsHashable(const Value& value) {
  if (value.Is(Kind::kDict)) return false;
  if (!value.Is(Kind::kSequence)) return true;
  if (value.flavor() == Flavor::kList || value.flavor() == Flavor::kView) return false;
  return std::all_of(value.items().begin(), value.items().end(), IsHashable);
}

namespace {

absl::Status CheckShape(const Budget& budget, const Value& value) {
  const Limits& limits = budget.limits();
  if (value.depth() > limits.max_value_depth) {
    return Failure(absl::StrCat("nests lists deeper than ", limits.max_value_depth, " levels"));
  }
  if (value.weight() > limits.max_value_weight) {
    return Failure(absl::StrCat("makes a list of more than ", limits.max_value_weight, " values"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> Context::String(Text text) const {
  RETURN_IF_ERROR(budget.Bytes(text.size() + sizeof(Value), text.size()));
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Context::Sequence(Flavor flavor, Items items) const {
  RETURN_IF_ERROR(budget.Bytes(items.size() * sizeof(Value)));
  Value value = Value::Sequence(flavor, std::move(items));
  RETURN_IF_ERROR(CheckShape(budget, value));
  return value;
}

absl::StatusOr<Value> Context::Dict(Entries entries) const {
  RETURN_IF_ERROR(budget.Bytes(entries.size() * 2 * sizeof(Value)));
  Value value = Value::Dict(std::move(entries));
  RETURN_IF_ERROR(CheckShape(budget, value));
  return value;
}

absl::Status Context::Append(Text* out, const Text& more, size_t begin, size_t end) const {
  RETURN_IF_ERROR(budget.Bytes(end - begin, out->size() + end - begin));
  out->Append(more, begin, end);
  return absl::OkStatus();
}

absl::Status Context::Append(Text* out, absl::string_view more, bool untrusted) const {
  RETURN_IF_ERROR(budget.Bytes(more.size(), out->size() + more.size()));
  out->Append(more, untrusted);
  return absl::OkStatus();
}

absl::StatusOr<Items> Context::Iterate(const Value& value) const {
  Items items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kSequence:
      RETURN_IF_ERROR(budget.Bytes(value.items().size() * sizeof(Value)));
      return value.TakeItems();
    case Kind::kDict:
      RETURN_IF_ERROR(budget.Bytes(value.entries().size() * sizeof(Value)));
      for (const auto& [key, item] : value.entries()) items.push_back(key);
      return items;
    case Kind::kString: {
      const Text& text = value.text();
      for (size_t at = 0; at < text.size();) {
        const size_t bytes = CharAt(text.view(), at).bytes;
        ASSIGN_OR_RETURN(Value character, String(text.Sub(at, at + bytes)));
        items.push_back(std::move(character));
        at += bytes;
      }
      return items;
    }
    default:
      return Failure(absl::StrCat("cannot walk over ", value.TypeName()));
  }
}

}  // namespace tessera::decode::jinja
