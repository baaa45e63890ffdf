#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace tessera::vision {

// The activation that a config calls `name`; nullopt when there is none of this name.
std::optional<kernels::Activation> ActivationNamed(absl::string_view name);

// "gelu, gelu_new, ...": all names above, for messages.
absl::string_view ActivationNames();

}  // namespace tessera::vision
