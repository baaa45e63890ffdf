#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "common/base/mutex.h"
#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/pictures/image_resolver.h"

namespace tessera::gateway {

// Has decode read uploaded pictures ahead of their questions: as much as there is room for, without
// a word when there is none. Owned by shared_ptr, so that callbacks may outlive who closed it. Any
// thread.
class AheadPrefill : public std::enable_shared_from_this<AheadPrefill> {
 public:
  // `decode` is used until Close has returned.
  explicit AheadPrefill(DecodeClient& decode) : decode_(decode) {}

  // Keeps the picture's rows readable until decode has read them. Never waits.
  // `affinity`: of the questions to come.
  void Start(const std::string& tenant, const std::string& affinity, const ResolvedImage& image,
             const rpc::RequestContext& request);

  // Start does nothing from now on; what is under way is cancelled and waited for.
  void Close();

 private:
  void OnDone(uint64_t number);

  DecodeClient& decode_;
  base::Mutex mutex_;
  base::CondVar done_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  // Under way.
  absl::flat_hash_map<uint64_t, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
