#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/limits.h"
#include "services/decode/template/text.h"

namespace tessera::decode::jinja {

enum class Kind {
  kUndefined,  // a name, key or index that is not there; prints as nothing
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer beyond 64 bits: prints, compares with itself, never calculates
  kFloat,
  kString,
  kSequence,
  kDict,
  kNamespace,
  kMacro,
  kLoop,
  kFunction,  // raise_exception, range, namespace, dict, ...
  kMethod,    // 'x'.upper, not called yet
};

enum class Flavor { kList, kTuple, kRange, kView, kGenerator };

class Value;
using Items = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

// What a Value may point to. Immutable after it is made, except where the comment says otherwise.
struct Object {
  virtual ~Object() = default;
  int depth = 0;       // how deep values nest below; bounded, so that recursion over them is too
  int64_t weight = 1;  // values below, a shared one as often as it is reached; bounded as well
};

// A Python-like value. Cheap to copy. A string knows which characters a user wrote; a number made
// from a user's text (`content | int`) is marked as a whole.
class Value {
 public:
  Value() = default;  // undefined
  static Value None() { return Value(Kind::kNone); }
  static Value Bool(bool value);
  static Value Int(int64_t value, bool untrusted = false);
  static Value Float(double value, bool untrusted = false);
  static Value BigInt(absl::string_view digits, bool untrusted = false);
  static Value Undefined(absl::string_view what);  // `what` names it in error messages
  static Value String(Text text);
  static Value String(absl::string_view text, bool untrusted = false);
  static Value List(Items items) { return Sequence(Flavor::kList, std::move(items)); }
  static Value Sequence(Flavor flavor, Items items, absl::string_view label = "");
  static Value Dict(Entries entries);
  static Value FromObject(Kind kind, std::shared_ptr<Object> object);

  Kind kind() const { return kind_; }
  bool Is(Kind kind) const { return kind_ == kind; }
  bool IsNumber() const { return Is(Kind::kInt) || Is(Kind::kFloat) || Is(Kind::kBool); }
  bool IsIntegral() const { return Is(Kind::kInt) || Is(Kind::kBool); }
  bool untrusted() const { return untrusted_; }

  // REQUIRES: the kind named.
  bool boolean() const { return number_.boolean; }
  int64_t integer() const { return Is(Kind::kBool) ? (number_.boolean ? 1 : 0) : number_.integer; }
  double real() const { return Is(Kind::kFloat) ? number_.real : static_cast<double>(integer()); }
  const Text& text() const;          // kString, kBigInt
  const Items& items() const;        // kSequence
  Flavor flavor() const;             // kSequence
  const Entries& entries() const;    // kDict
  const std::string& label() const;  // kUndefined, kFunction, kMethod, kSequence of kView, kRange
  Object* object() const { return object_.get(); }
  const std::shared_ptr<Object>& shared() const { return object_; }

  // A generator gives its items once.
  Items TakeItems() const;
  // As split() on a user's text: who counts the items is the user.
  bool untrusted_shape() const;
  Value WithUntrustedShape() const;  // REQUIRES: kSequence

  int depth() const { return object_ == nullptr ? 0 : object_->depth; }
  // What it costs to walk over all of it: a string counts one and one more per 64 bytes.
  int64_t weight() const { return object_ == nullptr ? 1 : object_->weight; }
  bool Truth() const;
  absl::string_view TypeName() const;  // Python's

  // The value of `key` in a dict, or null.
  const Value* Find(const Value& key) const;
  const Value* Find(absl::string_view key) const;

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool untrusted_ = false;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
  } number_;
  std::shared_ptr<Object> object_;
};

// A namespace() lives as long as its rendering, which empties it at the end (it may hold itself).
struct NamespaceObject : Object {
  std::vector<std::pair<std::string, Value>> fields;  // changes
};

struct MethodObject : Object {
  Value self;
  std::string name;
};

// Python's ==. Never fails: unlike kinds differ.
bool Equals(const Value& a, const Value& b);
// Python's <; failure where Python raises TypeError.
absl::StatusOr<bool> Less(const Value& a, const Value& b);
// May be a key of a dict.
bool IsHashable(const Value& value);

// What filters, tests and methods work with.
struct Context {
  Budget& budget;

  // Values as Value::String, ::Sequence and ::Dict make them, charged to the budget, depth checked.
  absl::StatusOr<Value> String(Text text) const;
  absl::StatusOr<Value> Sequence(Flavor flavor, Items items) const;
  absl::StatusOr<Value> Dict(Entries entries) const;
  absl::Status Append(Text* out, const Text& more) const {
    return Append(out, more, 0, more.size());
  }
  absl::Status Append(Text* out, const Text& more, size_t begin, size_t end) const;
  absl::Status Append(Text* out, absl::string_view more, bool untrusted = false) const;
  // The items of an iterable: characters, items, keys. Failure where Python cannot iterate.
  absl::StatusOr<Items> Iterate(const Value& value) const;
};

}  // namespace tessera::decode::jinja
