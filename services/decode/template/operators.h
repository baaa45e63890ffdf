#pragma once

#include "absl/status/statusor.h"
#include "services/decode/template/ast.h"
#include "services/decode/template/value.h"

// Python's operators.
namespace tessera::decode::jinja {

absl::StatusOr<Value> Arithmetic(const Context& context, Op op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<bool> CompareValues(const Context& context, Op op, const Value& a, const Value& b);
absl::StatusOr<bool> Contains(const Context& context, const Value& container, const Value& value);
absl::StatusOr<Value> Repeat(const Context& context, const Value& value, int64_t times);
// '%s' % values, and the filter `format`.
absl::StatusOr<Value> FormatPercent(const Context& context, const Text& pattern,
                                    const Items& values);

}  // namespace tessera::decode::jinja
