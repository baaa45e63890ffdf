#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/args.h"

namespace tessera::decode::jinja {

bool IsTest(absl::string_view name);

// `subject is name(args)`.
absl::StatusOr<bool> CallTest(const Context& context, absl::string_view name, const Value& subject,
                              const Args& args);

}  // namespace tessera::decode::jinja
