#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/store/embedding_key.h"

namespace tessera::vision {

// Why pictures were refused, by key, so that the same bytes are neither taken nor decoded again. A
// tenant has so many at most, all tenants together `most`; those refused longest ago leave first,
// the tenant's own before others'. Any thread.
class RefusedPictures {
 public:
  // REQUIRES: 1 <= most_of_tenant <= most.
  RefusedPictures(size_t most, size_t most_of_tenant);

  // Of a picture whose bytes had the digest of `key`. REQUIRES: `why` is INVALID_ARGUMENT.
  void Add(absl::string_view tenant, const store::EmbeddingKey& key, const absl::Status& why);
  std::optional<absl::Status> Find(const store::EmbeddingKey& key) const;
  size_t size() const;

 private:
  struct Entry {
    absl::Status why;
    std::string tenant;
  };

  void Remove(const store::EmbeddingKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_, most_of_tenant_;
  mutable base::Mutex mutex_;
  absl::flat_hash_map<store::EmbeddingKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<store::EmbeddingKey> order_ ABSL_GUARDED_BY(mutex_);  // of all, the oldest first
  absl::flat_hash_map<std::string, std::deque<store::EmbeddingKey>> orders_of_tenants_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::vision
