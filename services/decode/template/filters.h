#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/args.h"
#include "services/decode/template/value.h"

namespace tessera::decode::jinja {

// Whether there is a filter of this name.
bool IsFilter(absl::string_view name);

// `subject | name(args)`. Failure: an unknown filter, bad arguments, a subject of a wrong type.
absl::StatusOr<Value> CallFilter(const Context& context, absl::string_view name,
                                 const Value& subject, const Args& args);

}  // namespace tessera::decode::jinja
