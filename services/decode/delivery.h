#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace tessera::decode {

// Something that has news for its client.
class Deliverable {
 public:
  virtual ~Deliverable() = default;
  // Sends what there is to send. Called by the delivery thread.
  virtual void Deliver() = 0;
};

// A thread that starts the writes of answers, so that the engine's thread spends no time in gRPC.
class Delivery {
 public:
  Delivery();
  // Delivers what was scheduled, then joins.
  ~Delivery();

  // Any thread; never waits. Allocates nothing once warm.
  void Schedule(std::shared_ptr<Deliverable> item);

 private:
  void Run();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::shared_ptr<Deliverable>> items_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tessera::decode
