#pragma once

#include <memory>

#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/fleet/replica_set.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::gateway {

// The clients of a whole set of replicas. A call goes to the replica of its affinity; while nothing
// of an answer was told it is tried once more elsewhere when its replica is lost: UNAVAILABLE, or
// silent. What is lost later, or twice, is UNAVAILABLE with a retry (VISION_LOST, DECODE_LOST).
// `replicas` outlives the client, and the client its calls' ends.
std::unique_ptr<VisionClient> MakeRoutedVisionClient(ReplicaSet& replicas);
std::unique_ptr<DecodeClient> MakeRoutedDecodeClient(ReplicaSet& replicas);

}  // namespace tessera::gateway
