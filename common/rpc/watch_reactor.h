#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"

namespace tessera::rpc {

// How often a watcher is told, from what it asks for: 0 is 250 ms, all within 10 ms and 10 s.
inline absl::Duration WatchInterval(uint32_t milliseconds) {
  if (milliseconds == 0) milliseconds = 250;
  return absl::Milliseconds(std::clamp<int64_t>(milliseconds, 10, 10'000));
}

// How long a watch lasts. A connection that has reached its age (server.h) gives its calls an
// hour more and then cuts them: by then watches have ended, OK, and been taken up on another.
constexpr absl::Duration kWatchLife = absl::Minutes(1);

// A stream that tells the same kind of thing at once and then in equal intervals, until its caller
// has gone or kWatchLife has passed. One write at a time: who reads slowly is told less often. Owns
// itself until OnDone.
template <typename Response>
class WatchReactor final : public grpc::ServerWriteReactor<Response>,
                           public std::enable_shared_from_this<WatchReactor<Response>> {
 public:
  // Called from several threads, one at a time; must not block.
  using Fill = std::function<void(Response&)>;
  struct Deps {
    base::Timers& timers;
    base::Clock& clock;
  };

  // `deps` outlives the call.
  static WatchReactor* Start(const Deps& deps, absl::Duration interval, Fill fill) {
    const std::shared_ptr<WatchReactor> reactor(new WatchReactor(deps, interval, std::move(fill)));
    reactor->self_ = reactor;
    reactor->Tell();
    return reactor.get();
  }

  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(mutex_);
      writing_ = false;
      if (ok && !cancelled_ && deps_.clock.Now() < end_) {
        next_ = deps_.timers.At(deps_.clock.Now() + interval_, [weak = this->weak_from_this()] {
          if (const auto self = weak.lock()) self->Tell();
        });
        return;
      }
    }
    End();
  }

  void OnCancel() override {
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      if (next_) deps_.timers.Cancel(*next_);
      if (writing_) return;  // its end follows
    }
    End();
  }

  void OnDone() override { const std::shared_ptr<WatchReactor> self = std::move(self_); }

 private:
  WatchReactor(const Deps& deps, absl::Duration interval, Fill fill)
      : deps_(deps),
        interval_(interval),
        end_(deps.clock.Now() + kWatchLife),
        fill_(std::move(fill)) {}

  void Tell() {
    {
      base::MutexLock lock(mutex_);
      if (cancelled_ || ended_) return;
      next_.reset();
      writing_ = true;
    }
    response_.Clear();
    fill_(response_);
    this->StartWrite(&response_);
  }

  void End() {
    {
      base::MutexLock lock(mutex_);
      if (std::exchange(ended_, true)) return;
    }
    this->Finish(grpc::Status::OK);
  }

  const Deps deps_;
  const absl::Duration interval_;
  const absl::Time end_;
  const Fill fill_;
  std::shared_ptr<WatchReactor> self_;  // until OnDone
  Response response_;                   // of the write under way

  base::Mutex mutex_;
  std::optional<base::Timers::Id> next_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::rpc
