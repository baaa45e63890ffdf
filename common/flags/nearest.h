#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tessera::flags {

// The one of `names` that is the fewest letters away from `name`, where these are at most a third
// of it: a typo.
std::optional<std::string> Nearest(const std::string& name, const std::vector<std::string>& names);

}  // namespace tessera::flags
