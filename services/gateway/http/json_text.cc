#include "services/gateway/http/json_text.h"

namespace tessera::gateway::http {

std::string JsonText(const base::Json& json) {
  return json.dump(-1, ' ', false, base::Json::error_handler_t::replace);
}

}  // namespace tessera::gateway::http
