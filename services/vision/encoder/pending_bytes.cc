#include "services/vision/encoder/pending_bytes.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::vision {

absl::StatusOr<std::unique_ptr<PendingBytes::Room>> PendingBytes::Reserve(size_t bytes) {
  base::MutexLock lock(mutex_);
  if (bytes_ > 0 && (bytes > max_bytes_ || bytes_ > max_bytes_ - bytes)) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat("pictures of ", bytes_, " bytes are here or on their way, and ",
                                 bytes, " more find no room; try again")),
        absl::Seconds(1));
  }
  bytes_ += bytes;
  return std::unique_ptr<Room>(new Room(*this, bytes));
}

PendingBytes::Room::~Room() {
  base::MutexLock lock(all_.mutex_);
  all_.bytes_ -= bytes_;
}

}  // namespace tessera::vision
