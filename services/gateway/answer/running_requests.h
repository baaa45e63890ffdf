#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace tessera::gateway {

// What may be told to end before it is done: an answer, or what has not come as far as one.
class RunningRequest {
 public:
  // Ends with `status`, unless it has ended. Any thread.
  virtual void Abort(const absl::Status& status) = 0;

 protected:
  ~RunningRequest() = default;
};

// The requests under way, to be ended all together. Any thread.
class RunningRequests {
 public:
  void Add(const std::shared_ptr<RunningRequest>& request);
  void Remove(const RunningRequest& request);  // perhaps one that never began
  // Each is told. Those that are added later go on.
  void AbortAll(const absl::Status& status);

 private:
  base::Mutex mutex_;
  absl::flat_hash_map<const RunningRequest*, std::weak_ptr<RunningRequest>> requests_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
