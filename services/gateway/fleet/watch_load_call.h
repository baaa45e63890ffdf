#pragma once

#include <grpcpp/channel.h>

#include <memory>

#include "absl/time/time.h"
#include "common/rpc/call_tracker.h"
#include "services/gateway/fleet/replica_set.h"

namespace tessera::gateway {

// WatchLoad calls, as Replica::watch makes them. Each waits until its replica can be reached.
// `tracker`, whose owner has the channel, outlives the calls.
std::shared_ptr<Call> WatchVisionLoad(const std::shared_ptr<grpc::Channel>& channel,
                                      rpc::CallTracker& tracker, absl::Duration interval,
                                      Replica::OnLoad on_load, Replica::OnEnd on_end);
std::shared_ptr<Call> WatchDecodeLoad(const std::shared_ptr<grpc::Channel>& channel,
                                      rpc::CallTracker& tracker, absl::Duration interval,
                                      Replica::OnLoad on_load, Replica::OnEnd on_end);

}  // namespace tessera::gateway
