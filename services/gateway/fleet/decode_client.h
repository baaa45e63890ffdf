#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/fleet/decode_peer.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// Which replica answers, and why that one.
struct Routed {
  std::string replica;
  std::string reason;
  bool redirected = false;  // its first choice would have been too late
};

// Where a request would best go.
struct Placement {
  // Requests with the same one are best answered in the same place; may be empty.
  std::string affinity;
  // A replica that would make it wait longer is passed over where another would not.
  absl::Duration patience = absl::InfiniteDuration();
};

// Until a request would begin, by what waits there already; 0 where that is not known.
struct DecodeWaits {
  absl::Duration first;  // at the replica that its affinity chooses
  absl::Duration least;  // at the one with the least to do
};

// What an answer says on its way through the replicas. One call at a time, on any thread; OnDone is
// the last.
class DecodeEvents : public AttemptEvents {
 public:
  // The replica that answers: once, or again where another took over.
  virtual void OnRouted(const Routed& routed) = 0;
  // OK with an end, or the error.
  virtual void OnDone(const absl::Status& status, const v1::DecodeEnd& end) = 0;
};

// The decode service, as many replicas as it has. Any thread.
class DecodeClient {
 public:
  virtual ~DecodeClient() = default;
  // `events` is kept until OnDone has returned, or the call was dropped unbegun. Never null.
  virtual std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                               const rpc::RequestContext& request,
                                               const Placement& placement,
                                               std::shared_ptr<DecodeEvents> events) = 0;

  using PrefillDone = DecodePeer::PrefillDone;
  // Ahead-work. `done` is called exactly once, on any thread. Never null.
  virtual std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                        const rpc::RequestContext& request,
                                        const std::string& affinity, PrefillDone done) = 0;

  virtual DecodeWaits Waits(const std::string& affinity) { return {}; }
};

}  // namespace tessera::gateway
