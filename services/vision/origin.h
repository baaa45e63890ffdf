#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tessera::vision {

// The address by which decode reads records of this process: `flag`, or that of its server where
// `flag` is empty. BAD_OPTION (origin) where that is no address, or nobody's: every address of a
// machine, or a port that is yet to be found. Pure.
absl::StatusOr<std::string> OriginOf(const std::string& flag, const std::string& grpc_address);

}  // namespace tessera::vision
