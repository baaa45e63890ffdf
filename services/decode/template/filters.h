#pragma once

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

bool IsFilter(absl::string_view name);

// `subject | name(args)`. Failure: an unknown filter, bad arguments, a subject of a wrong type.
absl::StatusOr<Value> CallFilter(const Context& context, absl::string_view name,
                                 const Value& subject, const Args& args);

}  // namespace tessera::decode::jinja
