#pragma once

#include <string>

#include "common/base/json.h"

namespace tessera::gateway::http {

// In one line. What is no UTF-8 becomes U+FFFD; nothing throws.
std::string JsonText(const base::Json& json);

}  // namespace tessera::gateway::http
