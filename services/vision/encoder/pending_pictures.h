#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"

namespace tessera::vision {

struct PendingLimits {
  size_t max_bytes = 0;     // of all pictures
  size_t max_images = 0;    // of which a tenant has its share; all of them are bounded elsewhere
  double tenant_share = 1;  // of both, that one tenant may have
};

// Encoded pictures that are here or have been asked for. Any thread.
class PendingPictures {
 public:
  explicit PendingPictures(const PendingLimits& limits) : limits_(limits) {}

  // Room for one picture; gives it back when it goes. The PendingPictures outlives it.
  class Room {
   public:
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

   private:
    friend class PendingPictures;
    Room(PendingPictures& owner, size_t bytes, std::string tenant)
        : owner_(owner), bytes_(bytes), tenant_(std::move(tenant)) {}

    PendingPictures& owner_;
    const size_t bytes_;
    const std::string tenant_;
  };

  // RESOURCE_EXHAUSTED, to be tried again after `retry`, where there is none: QUEUE_FULL for
  // everybody, QUOTA_EXCEEDED for `tenant`, who has its share; without a name it has none. A
  // picture that is alone, of all or of its tenant, always has room there. Never null.
  absl::StatusOr<std::unique_ptr<Room>> Reserve(size_t bytes, absl::string_view tenant,
                                                absl::Duration retry);

 private:
  struct Held {
    size_t images = 0;
    size_t bytes = 0;
  };

  bool HasShareLeft(const Held& held, size_t bytes) const;

  const PendingLimits limits_;
  base::Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, Held> tenants_ ABSL_GUARDED_BY(mutex_);  // with names
};

}  // namespace tessera::vision
