#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::gateway {

// The calls that one replica works on, and how long each has been silent. Not thread-safe; calls
// nobody, and lets go of no call: its owner's lock may be one that the ends of calls take.
class ReplicaCalls {
 public:
  void Add(std::weak_ptr<Call> call, std::shared_ptr<const Hearing> hearing, absl::Time now);

  // Hears all of them. When the last word of any of them was heard; InfinitePast: none ever.
  absl::Time Listen(absl::Time now);

  // Takes those of which nothing is told and Listen has heard nothing for longer than `untold`, and
  // those of which something is told, for longer than `told`.
  std::vector<std::shared_ptr<Call>> TakeSilent(absl::Time now, absl::Duration untold,
                                                absl::Duration told);
  std::vector<std::shared_ptr<Call>> TakeAll();

 private:
  struct Entry {
    std::weak_ptr<Call> call;
    std::shared_ptr<const Hearing> hearing;  // null: nothing is heard of it but its end
    uint64_t words = 0;                      // of hearing, when it was listened to
    absl::Time heard;                        // a word, or its beginning
  };

  std::vector<Entry> entries_;
  absl::Time heard_ = absl::InfinitePast();
};

}  // namespace tessera::gateway
