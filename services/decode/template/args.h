#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/value.h"

namespace tessera::decode::jinja {

// The arguments of a call, already evaluated.
struct Args {
  Items positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The arguments in the order of `names`, null where not given. Failure: too many, an unknown
  // name, one given twice, or one of the first `required` missing. Borrowed from this.
  absl::StatusOr<std::vector<const Value*>> Bind(absl::string_view what,
                                                 const std::vector<absl::string_view>& names,
                                                 size_t required = 0) const;
};

// `value` as an integer argument of `what`, or `fallback` where it is not given.
absl::StatusOr<int64_t> IntegerArgument(const Value* value, int64_t fallback,
                                        absl::string_view what);
inline bool Flag(const Value* value) { return value != nullptr && value->Truth(); }

}  // namespace tessera::decode::jinja
