#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "absl/status/statusor.h"
#include "common/rpc/trace/span_exporter.h"

namespace tessera::rpc {

// A channel to the collector of spans; null where none is named. Connects in the background.
// INVALID_ARGUMENT, BAD_OPTION: the endpoint or the file.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectCollector(const TraceOptions& options);

}  // namespace tessera::rpc
