#include "services/vision/encoder/pending_pictures.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::vision {
namespace {

bool Fits(size_t bytes, size_t held, size_t most) {
  return held == 0 || (bytes <= most && held <= most - bytes);
}

absl::Status NoRoom(absl::string_view reason, const std::string& why, absl::Duration retry) {
  return base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, reason, why), retry);
}

}  // namespace

bool PendingPictures::HasShareLeft(const Held& held, size_t bytes) const {
  const auto share = [this](size_t all) {
    return static_cast<size_t>(limits_.tenant_share * static_cast<double>(all));
  };
  return Fits(1, held.images, share(limits_.max_images)) &&
         Fits(bytes, held.bytes, share(limits_.max_bytes));
}

absl::StatusOr<std::unique_ptr<PendingPictures::Room>> PendingPictures::Reserve(
    size_t bytes, absl::string_view tenant, absl::Duration retry) {
  base::MutexLock lock(mutex_);
  if (!tenant.empty()) {
    const auto found = tenants_.find(tenant);
    const Held held = found == tenants_.end() ? Held() : found->second;
    if (!HasShareLeft(held, bytes)) {
      return NoRoom("QUOTA_EXCEEDED",
                    absl::StrCat(held.images, " pictures of this tenant, ", held.bytes,
                                 " bytes, wait for the encoder (--tenant_share); try again"),
                    retry);
    }
  }
  if (!Fits(bytes, bytes_, limits_.max_bytes)) {
    return NoRoom("QUEUE_FULL",
                  absl::StrCat("pictures of ", bytes_, " bytes are here or on their way, and ",
                               bytes, " more find no room; try again"),
                  retry);
  }
  bytes_ += bytes;
  if (!tenant.empty()) {
    Held& held = tenants_[tenant];
    held.images += 1;
    held.bytes += bytes;
  }
  return std::unique_ptr<Room>(new Room(*this, bytes, std::string(tenant)));
}

PendingPictures::Room::~Room() {
  base::MutexLock lock(owner_.mutex_);
  owner_.bytes_ -= bytes_;
  if (tenant_.empty()) return;
  const auto found = owner_.tenants_.find(tenant_);
  found->second.bytes -= bytes_;
  if (--found->second.images == 0) owner_.tenants_.erase(found);
}

}  // namespace tessera::vision
