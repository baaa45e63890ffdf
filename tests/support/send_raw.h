#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tessera::testing {

// What a client with raw bytes gets from `method` ("/package.Service/Method"): messages go as they
// are, the status of the answer comes back.
absl::Status SendRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::vector<std::string>& messages);

}  // namespace tessera::testing
