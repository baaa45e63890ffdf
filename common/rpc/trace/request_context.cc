#include "common/rpc/trace/request_context.h"

#include "common/base/digest.h"

namespace tessera::rpc {

std::string NewRequestId() { return base::ToHex(base::RandomBytes(16)); }

}  // namespace tessera::rpc
