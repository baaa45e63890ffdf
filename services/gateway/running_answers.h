#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace tessera::gateway {

class Answer;

// The answers under way, to be ended all together. Any thread.
class RunningAnswers {
 public:
  void Add(const std::shared_ptr<Answer>& answer);
  void Remove(const Answer& answer);  // perhaps never added
  // Each ends with `status`, unless it has ended. Those that are added later go on.
  void AbortAll(const absl::Status& status);

 private:
  base::Mutex mutex_;
  absl::flat_hash_map<const Answer*, std::weak_ptr<Answer>> answers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
