#include "services/gateway/answer/running_requests.h"

#include <vector>

namespace tessera::gateway {

void RunningRequests::Add(const std::shared_ptr<RunningRequest>& request) {
  base::MutexLock lock(mutex_);
  requests_.emplace(request.get(), request);
}

void RunningRequests::Remove(const RunningRequest& request) {
  base::MutexLock lock(mutex_);
  requests_.erase(&request);
}

void RunningRequests::AbortAll(const absl::Status& status) {
  std::vector<std::shared_ptr<RunningRequest>> running;  // they are told, and perhaps go, unlocked
  {
    base::MutexLock lock(mutex_);
    for (const auto& [name, weak] : requests_) {
      if (std::shared_ptr<RunningRequest> request = weak.lock()) {
        running.push_back(std::move(request));
      }
    }
  }
  for (const std::shared_ptr<RunningRequest>& request : running) request->Abort(status);
}

}  // namespace tessera::gateway
