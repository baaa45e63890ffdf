#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::decode::jinja {

// The text of a string literal's body: Python's escapes \n \t \\ \' \" \ooo \xHH \uXXXX
// \UXXXXXXXX; an unknown escape stays as it is. Failure: cut escapes, lone surrogates, \N{...}.
absl::StatusOr<std::string> Unescape(absl::string_view body);

}  // namespace tessera::decode::jinja
