#include "common/store/redis/redis_pool.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"

namespace tessera::store {
namespace {

constexpr absl::Duration kResolveTimeout = absl::Seconds(5);

absl::Status Down() {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_DOWN", "the embedding store is down");
}

absl::Time Now() { return base::RealClock().Now(); }

}  // namespace

RedisPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      era_(other.era_),
      connection_(std::move(other.connection_)) {}

RedisPool::Lease::~Lease() {
  if (pool_ != nullptr) pool_->GiveBack(std::move(connection_), era_);
}

void RedisPool::Lease::Broken(const absl::Status& why, bool down) {
  connection_.reset();
  if (down) pool_->Lose(why, era_);
}

RedisPool::RedisPool(const RedisOptions& options, const RedisTls* tls, metrics::Gauge up)
    : options_(options),
      tls_(tls),
      gauge_(up),
      resolver_(options.address.host, options.address.port),
      why_down_(base::Error(absl::StatusCode::kUnavailable, "REDIS_CONNECTING",
                            "the embedding store is still being connected")),
      backoff_(options.min_backoff),
      jitter_(std::random_device{}()) {
  keeper_ = std::thread([this] { Keep(); });
}

RedisPool::~RedisPool() {
  resolver_.Cancel();
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    keeper_wakes_.SignalAll();
    changed_.SignalAll();
  }
  keeper_.join();
  base::MutexLock lock(mutex_);
  CHECK_EQ(lent_, 0);
}

absl::Status RedisPool::state() const {
  base::MutexLock lock(mutex_);
  return up_ ? absl::OkStatus() : why_down_;
}

absl::Status RedisPool::FirstState(absl::Duration timeout) {
  const absl::Time deadline = Now() + timeout;
  base::MutexLock lock(mutex_);
  while (!up_ && era_ == 0 && Now() < deadline) changed_.WaitFor(mutex_, deadline - Now());
  return up_ ? absl::OkStatus() : why_down_;
}

bool RedisPool::WaitUntilUp(absl::Duration timeout) {
  const absl::Time deadline = Now() + timeout;
  base::MutexLock lock(mutex_);
  while (!up_ && !stop_ && Now() < deadline) changed_.WaitFor(mutex_, deadline - Now());
  return up_;
}

absl::StatusOr<RedisPool::Lease> RedisPool::Take(absl::Time deadline) {
  uint64_t era = 0;
  {
    base::MutexLock lock(mutex_);
    while (up_ && lent_ >= options_.max_connections) {
      const absl::Duration left = deadline - Now();
      if (left <= absl::ZeroDuration()) {
        return base::Error(absl::StatusCode::kDeadlineExceeded, "REDIS_BUSY",
                           "all connections to the embedding store are in use");
      }
      changed_.WaitFor(mutex_, left);
    }
    if (!up_ || stop_) return Down();
    ++lent_;
    era = era_;
  }
  Lease lease(*this, era);
  lease.connection_ = TakeIdle(era);
  if (lease.connection_ != nullptr) return lease;
  auto opened = Connect();
  if (!opened.ok()) {
    lease.Broken(opened.status(), /*down=*/true);
    return opened.status();
  }
  lease.connection_ = *std::move(opened);
  return lease;
}

std::unique_ptr<RedisConnection> RedisPool::TakeIdle(uint64_t era) {
  while (true) {
    std::unique_ptr<RedisConnection> connection;
    {
      base::MutexLock lock(mutex_);
      if (era != era_ || idle_.empty()) return nullptr;
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    // The server may have closed it, or have said something that nobody asked for.
    if (connection->IsQuiet()) return connection;
  }
}

void RedisPool::GiveBack(std::unique_ptr<RedisConnection> connection, uint64_t era) {
  base::MutexLock lock(mutex_);
  --lent_;
  if (connection != nullptr && era == era_) {
    idle_.push_back(std::move(connection));
    backoff_ = options_.min_backoff;
  }
  changed_.SignalAll();
}

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisPool::Connect() {
  std::vector<SocketAddress> addresses;
  {
    base::MutexLock lock(mutex_);
    addresses = addresses_;
  }
  return RedisConnection::Open(options_, tls_, addresses);
}

void RedisPool::PauseAgain() {
  const absl::Duration half = backoff_ / 2;
  next_try_ = Now() + half + half * std::uniform_real_distribution<double>(0, 1)(jitter_);
  backoff_ = std::min(2 * backoff_, options_.max_backoff);
}

void RedisPool::Lose(const absl::Status& why, uint64_t era) {
  std::vector<std::unique_ptr<RedisConnection>> gone;  // closed without the lock
  base::MutexLock lock(mutex_);
  if (era != era_) return;
  ++era_;
  up_ = false;
  why_down_ = why;
  gone.swap(idle_);
  PauseAgain();
  gauge_.Set(0);
  keeper_wakes_.Signal();
  changed_.SignalAll();
  if (std::exchange(loss_logged_, true)) return;
  // Under the lock, as the other one: the lines stand in the order of the changes.
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("embedding store: Redis at ", options_.address.Text(),
                         " is down, look-ups miss until it is back: ", why.message()));
}

void RedisPool::TryToConnect() {
  uint64_t era = 0;
  {
    base::MutexLock lock(mutex_);
    era = era_;
  }
  auto addresses = resolver_.Resolve(kResolveTimeout);
  if (!addresses.ok()) return Lose(addresses.status(), era);
  auto opened = RedisConnection::Open(options_, tls_, *addresses);
  if (!opened.ok()) return Lose(opened.status(), era);
  base::MutexLock lock(mutex_);
  addresses_ = *std::move(addresses);
  idle_.push_back(*std::move(opened));
  up_ = true;
  loss_logged_ = false;
  gauge_.Set(1);
  changed_.SignalAll();
  base::Log(base::LogLevel::kInfo,
            absl::StrCat("embedding store: Redis at ", options_.address.Text(), " is up"));
}

void RedisPool::Ping() {
  absl::StatusOr<Lease> lease = Take(Now());
  if (!lease.ok()) return;  // in use, hence watched; or lost, and said so
  // It may have to wait for the large answers of others.
  const absl::StatusOr<RedisReply> reply = (*lease)->Command({"PING"}, options_.connect_timeout);
  if (!reply.ok()) {
    lease->Broken(reply.status(), /*down=*/true);
  } else if (reply->MeansDown()) {
    lease->Broken(base::Error(absl::StatusCode::kUnavailable, "REDIS_DOWN", reply->text),
                  /*down=*/true);
  }
}

void RedisPool::Keep() {
  while (true) {
    bool up = false;
    {
      base::MutexLock lock(mutex_);
      const absl::Time next = up_ ? Now() + options_.ping_interval : next_try_;
      const uint64_t era = era_;
      while (!stop_ && era == era_ && Now() < next) {
        keeper_wakes_.WaitFor(mutex_, next - Now());
      }
      if (stop_) return;
      if (era != era_) continue;
      up = up_;
    }
    if (up) {
      Ping();
    } else {
      TryToConnect();
    }
  }
}

}  // namespace tessera::store
