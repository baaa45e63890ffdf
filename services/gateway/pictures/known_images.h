#pragma once

#include <list>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "tessera/v1/types.pb.h"

namespace tessera::gateway {

// What became of a picture: its ref, or why it was refused. Least recently used leave first.
// Any thread.
class KnownImages {
 public:
  explicit KnownImages(size_t capacity) : capacity_(capacity) {}

  // nullopt when unknown, or known under another vision fingerprint than `fingerprint`.
  std::optional<absl::StatusOr<v1::ImageRef>> Find(const std::string& tenant,
                                                   const base::Sha256Digest& digest,
                                                   const std::string& fingerprint);
  void Remember(const std::string& tenant, const base::Sha256Digest& digest,
                absl::StatusOr<v1::ImageRef> ref);
  // A ref stays.
  void ForgetRefusal(const std::string& tenant, const base::Sha256Digest& digest);
  size_t size() const;

 private:
  using Key = std::pair<std::string, base::Sha256Digest>;
  using Entry = std::pair<Key, absl::StatusOr<v1::ImageRef>>;

  const size_t capacity_;
  mutable base::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  absl::flat_hash_map<Key, std::list<Entry>::iterator> index_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
