#include "services/gateway/fleet/router.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"

namespace tessera::gateway {
namespace {

// Of a replica's room, what a request is taken to need before the replica has told.
constexpr double kShareOfRequest = 1.0 / 64;

double Taken(const ReplicaView& replica) {
  return replica.pressure + kShareOfRequest * static_cast<double>(replica.picked);
}

uint64_t Weight(absl::string_view name, absl::string_view affinity) {
  const base::Sha256Digest digest = base::Sha256Of(absl::StrCat(name, "\n", affinity));
  uint64_t weight = 0;
  std::memcpy(&weight, digest.data(), sizeof(weight));
  return weight;
}

// Indices, the best first.
std::vector<size_t> Ranked(absl::Span<const ReplicaView> replicas, absl::string_view affinity) {
  std::vector<size_t> order(replicas.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (affinity.empty()) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return Taken(replicas[a]) < Taken(replicas[b]); });
    return order;
  }
  std::vector<uint64_t> weights;
  for (const ReplicaView& replica : replicas) weights.push_back(Weight(replica.name, affinity));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  return order;
}

bool Takes(const ReplicaView& replica) { return Works(replica) && !replica.full; }

const char* WhyNot(const ReplicaView& replica, bool tried) {
  if (tried) return "lost";
  if (!replica.up) return "down";
  if (replica.broken) return "broken";
  if (replica.draining) return "draining";
  if (replica.full) return "full";
  return "too busy for the deadline";
}

}  // namespace

Route ChooseReplica(absl::Span<const ReplicaView> replicas, absl::string_view affinity,
                    absl::Span<const std::string> tried, absl::Duration patience) {
  const auto was_tried = [&](const ReplicaView& replica) {
    return std::find(tried.begin(), tried.end(), replica.name) != tried.end();
  };
  Route route;
  const ReplicaView* first = nullptr;   // what it would get if all could be asked
  const ReplicaView* chosen = nullptr;  // the best that is early enough, else the earliest
  for (const size_t index : Ranked(replicas, affinity)) {
    const ReplicaView& replica = replicas[index];
    if (first == nullptr && (!affinity.empty() || was_tried(replica))) first = &replica;
    if (was_tried(replica)) continue;
    if (Works(replica)) route.outcome = Route::Outcome::kAllFull;
    if (!Takes(replica)) continue;
    if (chosen == nullptr || (chosen->wait > patience && replica.wait < chosen->wait)) {
      chosen = &replica;
    }
  }
  if (chosen == nullptr) return route;
  route.outcome = Route::Outcome::kFound;
  route.index = static_cast<size_t>(chosen - replicas.data());
  if (first != nullptr && first != chosen) {
    route.redirected = Takes(*first) && !was_tried(*first);
    route.reason =
        absl::StrCat("first choice ", first->name, " is ", WhyNot(*first, was_tried(*first)));
  } else if (replicas.size() == 1) {
    route.reason = "only replica";
  } else {
    route.reason = affinity.empty() ? "least loaded" : "affinity";
  }
  return route;
}

}  // namespace tessera::gateway
