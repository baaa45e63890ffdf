#include "services/vision/encoder/refused_pictures.h"

#include <algorithm>

#include "common/base/check.h"

namespace tessera::vision {

RefusedPictures::RefusedPictures(size_t most, size_t most_of_tenant)
    : most_(most), most_of_tenant_(most_of_tenant) {
  CHECK_GE(most_of_tenant, 1u);
  CHECK_LE(most_of_tenant, most);
}

void RefusedPictures::Add(absl::string_view tenant, const store::EmbeddingKey& key,
                          const absl::Status& why) {
  CHECK(absl::IsInvalidArgument(why));
  base::MutexLock lock(mutex_);
  if (!entries_.try_emplace(key, Entry{why, std::string(tenant)}).second) return;
  order_.push_back(key);
  std::deque<store::EmbeddingKey>& of_tenant = orders_of_tenants_[tenant];
  of_tenant.push_back(key);
  if (of_tenant.size() > most_of_tenant_) Remove(store::EmbeddingKey(of_tenant.front()));
  if (order_.size() > most_) Remove(store::EmbeddingKey(order_.front()));
}

void RefusedPictures::Remove(const store::EmbeddingKey& key) {
  const auto entry = entries_.find(key);
  const auto of_tenant = orders_of_tenants_.find(entry->second.tenant);
  of_tenant->second.erase(std::find(of_tenant->second.begin(), of_tenant->second.end(), key));
  if (of_tenant->second.empty()) orders_of_tenants_.erase(of_tenant);
  order_.erase(std::find(order_.begin(), order_.end(), key));
  entries_.erase(entry);
}

std::optional<absl::Status> RefusedPictures::Find(const store::EmbeddingKey& key) const {
  base::MutexLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return std::nullopt;
  return entry->second.why;
}

size_t RefusedPictures::size() const {
  base::MutexLock lock(mutex_);
  return entries_.size();
}

}  // namespace tessera::vision
