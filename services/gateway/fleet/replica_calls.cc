#include "services/gateway/fleet/replica_calls.h"

#include <utility>

namespace tessera::gateway {

void ReplicaCalls::Add(std::weak_ptr<Call> call, std::shared_ptr<const Hearing> hearing,
                       absl::Time now) {
  // Those that have ended are swept out when they are the most.
  if (entries_.size() == entries_.capacity()) {
    std::erase_if(entries_, [](const Entry& entry) { return entry.call.expired(); });
  }
  entries_.push_back({std::move(call), std::move(hearing), 0, now});
}

absl::Time ReplicaCalls::Listen(absl::Time now) {
  for (Entry& entry : entries_) {
    if (entry.hearing == nullptr) continue;
    const uint64_t words = entry.hearing->words.load();
    if (words != entry.words) {
      heard_ = now;
    } else if (!entry.hearing->paused.load()) {
      continue;
    }
    entry.words = words;
    entry.heard = now;  // while nobody reads from it, it is not silent
  }
  return heard_;
}

std::vector<std::shared_ptr<Call>> ReplicaCalls::TakeSilent(absl::Time now, absl::Duration untold,
                                                            absl::Duration told) {
  std::vector<std::shared_ptr<Call>> silent;
  std::erase_if(entries_, [&](const Entry& entry) {
    const bool has_told = entry.hearing != nullptr && entry.hearing->told.load();
    if (now - entry.heard <= (has_told ? told : untold)) return false;
    if (std::shared_ptr<Call> call = entry.call.lock()) silent.push_back(std::move(call));
    return true;
  });
  return silent;
}

std::vector<std::shared_ptr<Call>> ReplicaCalls::TakeAll() {
  std::vector<std::shared_ptr<Call>> calls;
  for (const Entry& entry : std::exchange(entries_, {})) {
    if (std::shared_ptr<Call> call = entry.call.lock()) calls.push_back(std::move(call));
  }
  return calls;
}

}  // namespace tessera::gateway
