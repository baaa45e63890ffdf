#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"

namespace tessera::vision {

// Bytes of encoded pictures that are here or have been asked for. Any thread.
class PendingBytes {
 public:
  explicit PendingBytes(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Room for one picture; gives it back when it goes. The PendingBytes outlives it.
  class Room {
   public:
    ~Room();
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

   private:
    friend class PendingBytes;
    Room(PendingBytes& all, size_t bytes) : all_(all), bytes_(bytes) {}

    PendingBytes& all_;
    const size_t bytes_;
  };

  // RESOURCE_EXHAUSTED (QUEUE_FULL, with retry) where there is none; a picture that is alone always
  // has it. Never null.
  absl::StatusOr<std::unique_ptr<Room>> Reserve(size_t bytes);

 private:
  const size_t max_bytes_;
  base::Mutex mutex_;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::vision
