#include "services/decode/delivery.h"

#include <utility>

namespace tessera::decode {

Delivery::Delivery() : thread_([this] { Run(); }) {}

Delivery::~Delivery() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Delivery::Schedule(std::shared_ptr<Deliverable> item) {
  base::MutexLock lock(mutex_);
  items_.push_back(std::move(item));
  changed_.Signal();
}

void Delivery::Run() {
  std::vector<std::shared_ptr<Deliverable>> taken;
  while (true) {
    {
      base::MutexLock lock(mutex_);
      while (items_.empty() && !stop_) changed_.Wait(mutex_);
      if (items_.empty()) return;
      std::swap(taken, items_);
    }
    for (const std::shared_ptr<Deliverable>& item : taken) item->Deliver();
    taken.clear();
  }
}

}  // namespace tessera::decode
