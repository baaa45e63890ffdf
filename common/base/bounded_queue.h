#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/mutex.h"

namespace tessera::base {

// A first-in first-out queue of at most `capacity` elements between threads. Any thread.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False, leaving `value` untouched, when the queue is full or closed. Never waits.
  bool TryPush(T&& value) {
    MutexLock lock(mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(value));
    ready_.Signal();
    return true;
  }

  // Waits for an element; nullopt once the queue is closed and empty.
  std::optional<T> Pop() {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) ready_.Wait(mutex_);
    return TakeFront();
  }

  // Never waits.
  std::optional<T> TryPop() {
    MutexLock lock(mutex_);
    return TakeFront();
  }

  // Pushing fails from now on; what is inside can still be taken.
  void Close() {
    MutexLock lock(mutex_);
    closed_ = true;
    ready_.SignalAll();
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> TakeFront() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::base
