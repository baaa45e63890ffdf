#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/store/redis/redis_connection.h"
#include "common/store/redis/redis_options.h"
#include "common/store/redis/redis_resolver.h"
#include "common/store/redis/redis_tls.h"

namespace tessera::store {

// Connections to one Redis, each lent to one thread at a time, and whether it is up. One thread of
// its own, the keeper, resolves the name and connects again with a growing pause; whoever asks
// meanwhile is refused at once. Any thread. One log line when it comes up, one when it is lost;
// where that goes to and fro, ever less often.
class RedisPool {
 public:
  // A connection on loan. Given back when it dies, unless it was broken. Movable; one thread.
  class Lease {
   public:
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    RedisConnection& operator*() const { return *connection_; }
    RedisConnection* operator->() const { return connection_.get(); }
    // The connection is not to be used again. `down`: nor is the server, for a while; the same
    // after timeouts_until_lost REDIS_TIMEOUT without an answer between them.
    void Broken(const absl::Status& why, bool down);

   private:
    friend class RedisPool;
    Lease(RedisPool& pool, uint64_t era) : pool_(&pool), era_(era) {}

    RedisPool* pool_;
    uint64_t era_;
    std::unique_ptr<RedisConnection> connection_;
  };

  // `options`, `tls` (may be null) and `up` outlive the pool. Begins to connect.
  RedisPool(const RedisOptions& options, const RedisTls* tls, metrics::Gauge up);
  // Waits for the keeper: connect_timeout at most. REQUIRES: no lease is out.
  ~RedisPool();
  RedisPool(const RedisPool&) = delete;
  RedisPool& operator=(const RedisPool&) = delete;

  // UNAVAILABLE, reason REDIS_DOWN, at once while it is down. DEADLINE_EXCEEDED, REDIS_BUSY: all
  // were lent until `deadline`. Otherwise why a connection could not be opened: it is down then.
  absl::StatusOr<Lease> Take(absl::Time deadline);

  // Another server may be the one for us: the name is resolved again soon, and connections to what
  // it names then take the place of these.
  void LookAgain();

  bool up() const { return state().ok(); }
  // OK while it is up, else why not: REDIS_CONNECTING before the first try has ended.
  absl::Status state() const;
  // The state once the first try has ended, or `timeout` has.
  absl::Status FirstState(absl::Duration timeout);
  // Whether it is up within `timeout`.
  bool WaitUntilUp(absl::Duration timeout);

 private:
  void Keep();
  void TryToConnect();
  void Ping();
  void Move();
  void CountTimeout(const absl::Status& why, uint64_t era);
  absl::StatusOr<std::unique_ptr<RedisConnection>> Connect();
  // An idle connection that is still good; null: one must be opened.
  std::unique_ptr<RedisConnection> TakeIdle(uint64_t era);
  void GiveBack(std::unique_ptr<RedisConnection> connection, uint64_t era);
  // `era`: in which the failure happened; one of the past changes nothing.
  void Lose(const absl::Status& why, uint64_t era);
  void PauseAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellLoss() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RedisOptions& options_;
  const RedisTls* const tls_;
  const metrics::Gauge gauge_;
  RedisResolver resolver_;

  mutable base::Mutex mutex_;
  base::CondVar changed_;  // a connection came back, or up, or down
  base::CondVar keeper_wakes_;
  bool up_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status why_down_ ABSL_GUARDED_BY(mutex_);
  bool told_ ABSL_GUARDED_BY(mutex_) = false;       // there is a line about it
  bool down_told_ ABSL_GUARDED_BY(mutex_) = false;  // the last one says that it is down
  absl::Time next_line_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // of a loss
  absl::Duration line_pause_ ABSL_GUARDED_BY(mutex_);
  int timeouts_ ABSL_GUARDED_BY(mutex_) = 0;  // since the last answer
  bool look_again_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t era_ ABSL_GUARDED_BY(mutex_) = 0;  // raised at each loss
  int lent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<RedisConnection>> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<SocketAddress> addresses_ ABSL_GUARDED_BY(mutex_);
  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_try_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::minstd_rand jitter_ ABSL_GUARDED_BY(mutex_);
  std::thread keeper_;
};

}  // namespace tessera::store
