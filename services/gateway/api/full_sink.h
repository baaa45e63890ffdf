#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/base/timers.h"

namespace tessera::gateway {

// Whether an answer waits for its client, and for how long yet. Guarded by its sink.
class FullSink {
 public:
  // `timers` outlives it.
  explicit FullSink(base::Timers& timers) : timers_(timers) {}

  // More text waits than may. `give_up` runs at `due`, unless Empty or Expire comes first.
  // REQUIRES: it is not full.
  void Fill(absl::Time due, std::function<void()> give_up) {
    was_full_ = true;
    expiry_ = timers_.At(due, std::move(give_up));
  }
  // The client has taken what there was. True: the answer is to be resumed.
  bool Empty() {
    if (!expiry_) return false;
    timers_.Cancel(*std::exchange(expiry_, std::nullopt));
    return true;
  }
  // By `give_up`: false where Empty came first, perhaps while it began to run.
  bool Expire() { return std::exchange(expiry_, std::nullopt).has_value(); }
  // It was full at some time.
  bool was_full() const { return was_full_; }

 private:
  base::Timers& timers_;
  std::optional<base::Timers::Id> expiry_;
  bool was_full_ = false;
};

}  // namespace tessera::gateway
