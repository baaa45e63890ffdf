#include "services/decode/template/value.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/unicode.h"

namespace tessera::decode::jinja {
namespace {

struct TextObject : Object {
  Text text;
};

struct LabelObject : Object {
  std::string label;
};

struct SequenceObject : Object {
  Flavor flavor = Flavor::kList;
  Items items;
  std::string label;
  bool untrusted_shape = false;
  bool taken = false;  // changes: a generator was walked
};

struct DictObject : Object {
  Entries entries;
};

void Contain(Object* object, const Value& item) {
  object->depth = std::max(object->depth, item.depth() + 1);
  object->weight += item.weight();  // no overflow: the parts are bounded
}

template <typename T>
const T& As(const Value& value) {
  CHECK(value.object() != nullptr);
  return *static_cast<const T*>(value.object());
}

}  // namespace

Value Value::Bool(bool value) {
  Value result(Kind::kBool);
  result.number_.boolean = value;
  return result;
}

Value Value::Int(int64_t value, bool untrusted) {
  Value result(Kind::kInt);
  result.number_.integer = value;
  result.untrusted_ = untrusted;
  return result;
}

Value Value::Float(double value, bool untrusted) {
  Value result(Kind::kFloat);
  result.number_.real = value;
  result.untrusted_ = untrusted;
  return result;
}

Value Value::BigInt(absl::string_view digits, bool untrusted) {
  Value result = String(digits, untrusted);
  result.kind_ = Kind::kBigInt;
  return result;
}

Value Value::Undefined(absl::string_view what) {
  auto object = std::make_shared<LabelObject>();
  object->label = std::string(what);
  return FromObject(Kind::kUndefined, std::move(object));
}

Value Value::String(Text text) {
  auto object = std::make_shared<TextObject>();
  object->weight += static_cast<int64_t>(text.size() / 64);
  object->text = std::move(text);
  return FromObject(Kind::kString, std::move(object));
}

Value Value::String(absl::string_view text, bool untrusted) {
  return String(Text(text, untrusted));
}

Value Value::Sequence(Flavor flavor, Items items, absl::string_view label) {
  auto object = std::make_shared<SequenceObject>();
  for (const Value& item : items) Contain(object.get(), item);
  object->flavor = flavor;
  object->items = std::move(items);
  object->label = std::string(label);
  return FromObject(Kind::kSequence, std::move(object));
}

Value Value::Dict(Entries entries) {
  auto object = std::make_shared<DictObject>();
  for (const auto& [key, item] : entries) {
    Contain(object.get(), key);
    Contain(object.get(), item);
  }
  object->entries = std::move(entries);
  return FromObject(Kind::kDict, std::move(object));
}

Value Value::FromObject(Kind kind, std::shared_ptr<Object> object) {
  Value result(kind);
  result.object_ = std::move(object);
  return result;
}

const Text& Value::text() const { return As<TextObject>(*this).text; }
const Items& Value::items() const { return As<SequenceObject>(*this).items; }
Flavor Value::flavor() const { return As<SequenceObject>(*this).flavor; }
const Entries& Value::entries() const { return As<DictObject>(*this).entries; }

const std::string& Value::label() const {
  if (Is(Kind::kSequence)) return As<SequenceObject>(*this).label;
  if (Is(Kind::kMethod)) return As<MethodObject>(*this).name;
  static const std::string* const unnamed = new std::string("value");
  return object_ == nullptr ? *unnamed : As<LabelObject>(*this).label;
}

Items Value::TakeItems() const {
  auto* sequence = static_cast<SequenceObject*>(object_.get());
  if (sequence->flavor != Flavor::kGenerator) return sequence->items;
  if (sequence->taken) return {};
  sequence->taken = true;
  return sequence->items;
}

bool Value::untrusted_shape() const {
  return Is(Kind::kSequence) && As<SequenceObject>(*this).untrusted_shape;
}

Value Value::WithUntrustedShape() const {
  auto object = std::make_shared<SequenceObject>(As<SequenceObject>(*this));
  object->untrusted_shape = true;
  return FromObject(Kind::kSequence, std::move(object));
}

bool Value::Truth() const {
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return number_.boolean;
    case Kind::kInt:
      return number_.integer != 0;
    case Kind::kFloat:
      return number_.real != 0;
    case Kind::kString:
      return !text().empty();
    case Kind::kSequence:
      return flavor() == Flavor::kGenerator || !items().empty();
    case Kind::kDict:
      return !entries().empty();
    default:
      return true;
  }
}

absl::string_view Value::TypeName() const {
  static constexpr absl::string_view kNames[] = {
      "undefined", "None", "bool",      "int",   "int",  "float",    "str",
      "list",      "dict", "namespace", "macro", "loop", "function", "method"};
  static constexpr absl::string_view kFlavors[] = {"list", "tuple", "range", "view", "generator"};
  if (Is(Kind::kSequence)) return kFlavors[static_cast<int>(flavor())];
  return kNames[static_cast<int>(kind_)];
}

const Value* Value::Find(const Value& key) const {
  for (const auto& [name, item] : entries()) {
    if (Equals(name, key)) return &item;
  }
  return nullptr;
}

const Value* Value::Find(absl::string_view key) const {
  for (const auto& [name, item] : entries()) {
    if (name.Is(Kind::kString) && name.text().view() == key) return &item;
  }
  return nullptr;
}

}  // namespace tessera::decode::jinja
