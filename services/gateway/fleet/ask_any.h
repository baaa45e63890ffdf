#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "services/gateway/fleet/replica_set.h"

namespace tessera::gateway {

struct AskOptions {
  absl::Duration patience = absl::ZeroDuration();  // until nobody is asked any more
  // Whether nobody waits for the answer any more; looked at between two waits. May be null.
  std::function<bool()> given_up = nullptr;
  // A wait without a change of the replicas: as long until given_up is looked at, and who could not
  // answer is asked again.
  absl::Duration interval = absl::Milliseconds(250);
};

// What the first replica that answers `ask` says, once one takes requests; every change of the set
// wakes it. Blocks. An error tells why there was no connection, where that was ever known: later
// asks only wait for gRPC to make another.
template <typename Info>
absl::StatusOr<Info> AskAny(
    ReplicaSet& replicas, const AskOptions& options,
    const std::function<absl::StatusOr<Info>(const std::string& name)>& ask) {
  const base::Clock& clock = base::RealClock();
  const absl::Time deadline = clock.Now() + options.patience;
  const auto over = [&] {
    return clock.Now() >= deadline || (options.given_up && options.given_up());
  };
  const auto await_change = [&](uint64_t seen) {
    replicas.AwaitChange(seen, std::min(options.interval, deadline - clock.Now()));
  };
  absl::StatusOr<Info> info = absl::UnavailableError("it has no address");
  bool info_is_cause = false;
  do {
    const uint64_t seen = replicas.changes();
    for (const ReplicaState& state : replicas.States()) {
      absl::StatusOr<Info> answer = ask(state.view.name);
      if (answer.ok() || !absl::IsDeadlineExceeded(answer.status()) || !info_is_cause) {
        info_is_cause = !absl::IsDeadlineExceeded(answer.status());
        info = std::move(answer);
      }
      if (info.ok()) break;
    }
    if (!info.ok()) await_change(seen);
  } while (!info.ok() && !over());
  while (info.ok() && !over()) {
    const uint64_t seen = replicas.changes();
    if (replicas.Pick("").ok()) break;
    await_change(seen);
  }
  return info;
}

}  // namespace tessera::gateway
