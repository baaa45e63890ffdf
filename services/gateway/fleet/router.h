#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera::gateway {

// A replica as the router sees it.
struct ReplicaView {
  std::string name;
  bool up = false;        // heard of lately
  bool draining = false;  // refuses new work
  bool full = false;      // over its limit: would refuse
  bool broken = false;    // answers nothing right
  double pressure = 0;    // share of its room that is taken, 0 to 1
  uint64_t picked = 0;    // for requests that its pressure does not tell of yet
  absl::Duration wait =
      absl::ZeroDuration();  // until a new request would begin; 0 where that is not known
};

// Whether requests go to it, now or when it has room again.
inline bool Works(const ReplicaView& replica) {
  return replica.up && !replica.draining && !replica.broken;
}

struct Route {
  enum class Outcome { kFound, kNoneUp, kAllFull };
  Outcome outcome = Outcome::kNoneUp;
  size_t index = 0;         // into the replicas, when found
  std::string reason;       // why that one; for receipts
  bool redirected = false;  // the first choice was passed over for its wait
};

// Where a request goes. With an affinity: by rendezvous hashing (Thaler and Ravishankar, 1998), the
// replica whose hash with it is greatest, so that what it has computed for this affinity is found
// again, and a replica that comes or goes moves only its own share; where that one is down,
// draining, full or broken, the next. Without: where the least is taken, by what it said and by
// what it was picked for since. `tried` are left out; who would make it wait longer than `patience`
// only gets it where nobody else would be earlier. Pure.
Route ChooseReplica(absl::Span<const ReplicaView> replicas, absl::string_view affinity,
                    absl::Span<const std::string> tried = {},
                    absl::Duration patience = absl::InfiniteDuration());

}  // namespace tessera::gateway
