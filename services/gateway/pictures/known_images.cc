#include "services/gateway/pictures/known_images.h"

namespace tessera::gateway {

std::optional<absl::StatusOr<v1::ImageRef>> KnownImages::Find(const std::string& tenant,
                                                              const base::Sha256Digest& digest,
                                                              const std::string& fingerprint) {
  base::MutexLock lock(mutex_);
  const auto found = index_.find(Key(tenant, digest));
  if (found == index_.end()) return std::nullopt;
  const absl::StatusOr<v1::ImageRef>& ref = found->second->second;
  if (ref.ok() && ref->vision_fingerprint() != fingerprint) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return ref;
}

void KnownImages::Remember(const std::string& tenant, const base::Sha256Digest& digest,
                           absl::StatusOr<v1::ImageRef> ref) {
  base::MutexLock lock(mutex_);
  const Key key(tenant, digest);
  if (const auto found = index_.find(key); found != index_.end()) {
    found->second->second = std::move(ref);
    entries_.splice(entries_.begin(), entries_, found->second);
    return;
  }
  if (entries_.size() >= capacity_) {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  entries_.emplace_front(key, std::move(ref));
  index_[key] = entries_.begin();
}

void KnownImages::ForgetRefusal(const std::string& tenant, const base::Sha256Digest& digest) {
  base::MutexLock lock(mutex_);
  const auto found = index_.find(Key(tenant, digest));
  if (found == index_.end() || found->second->second.ok()) return;
  entries_.erase(found->second);
  index_.erase(found);
}

size_t KnownImages::size() const {
  base::MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace tessera::gateway
