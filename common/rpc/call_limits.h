#pragma once

#include "absl/time/time.h"

// Times that hold for every call of every service.
namespace tessera::rpc {

// Calls that take longer may be cut when their connection comes of age.
inline constexpr absl::Duration kLongestCall = absl::Hours(1);
// When a server ends: what its calls have to be told so, those too that stay open, such as health's
// and who watches the load.
inline constexpr absl::Duration kLastWords = absl::Seconds(1);

}  // namespace tessera::rpc
