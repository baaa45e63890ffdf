#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "services/decode/template/args.h"
#include "services/decode/template/value.h"

// Attributes, keys, slices and methods of values (not of loops: those belong to the interpreter).
namespace tessera::decode::jinja {

// `value.name`: a method or attribute, else the key; undefined where there is none, failure on an
// undefined value.
absl::StatusOr<Value> GetAttribute(const Context& context, const Value& value,
                                   absl::string_view name);
// `value[key]`: the key, else a method or attribute; undefined where there is none, failure on an
// undefined value.
absl::StatusOr<Value> GetItem(const Context& context, const Value& value, const Value& key);

struct Slice {
  std::optional<int64_t> start, stop, step;
};
absl::StatusOr<Value> GetSlice(const Context& context, const Value& value, const Slice& slice);

// `a.b.0` as the filters' `attribute` has it: keys before attributes, missing ones undefined.
absl::StatusOr<Value> GetPath(const Context& context, const Value& value, const Value& path);

// True when Python's type has such a method, supported here or not.
bool HasMethod(const Value& value, absl::string_view name);
// Failure: a method that changes its object (the sandbox), or one that is not supported.
absl::StatusOr<Value> CallMethod(const Context& context, const Value& self, absl::string_view name,
                                 const Args& args);

}  // namespace tessera::decode::jinja
