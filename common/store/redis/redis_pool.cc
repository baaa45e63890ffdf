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
constexpr absl::Duration kLookPause = absl::Seconds(5);  // between two looks for another server
// Between two lines of losses that follow each other; twice as long each time.
constexpr absl::Duration kLeastLinePause = absl::Seconds(5);
constexpr absl::Duration kMostLinePause = absl::Minutes(5);

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
  const std::string reason = base::ReasonOf(why);
  if (down) {
    pool_->Lose(why, era_);
  } else if (reason == "REDIS_TIMEOUT") {
    pool_->CountTimeout(why, era_);
  } else if (reason == "REDIS_CLOSED") {
    pool_->LookAgain();
  }
}

RedisPool::RedisPool(const RedisOptions& options, const RedisTls* tls, metrics::Gauge up)
    : options_(options),
      tls_(tls),
      gauge_(up),
      resolver_(options.address.host, options.address.port, options.resolve),
      why_down_(base::Error(absl::StatusCode::kUnavailable, "REDIS_CONNECTING",
                            "the embedding store is still being connected")),
      line_pause_(kLeastLinePause),
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
    lease.Broken(opened.status(), base::ReasonOf(opened.status()) != "REDIS_TIMEOUT");
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
    timeouts_ = 0;
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

void RedisPool::LookAgain() {
  base::MutexLock lock(mutex_);
  if (!std::exchange(look_again_, true)) keeper_wakes_.Signal();
}

void RedisPool::CountTimeout(const absl::Status& why, uint64_t era) {
  {
    base::MutexLock lock(mutex_);
    if (era != era_ || ++timeouts_ < options_.timeouts_until_lost) return;
  }
  Lose(why, era);
}

// Under the lock, as what is told of coming up: the lines stand in the order of the changes.
void RedisPool::TellLoss() {
  if (told_ && down_told_) return;
  const absl::Time now = Now();
  if (now < next_line_) return;
  if (now > next_line_ + kMostLinePause) line_pause_ = kLeastLinePause;  // a calm time
  next_line_ = now + line_pause_;
  line_pause_ = std::min(2 * line_pause_, kMostLinePause);
  told_ = down_told_ = true;
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("embedding store: Redis at ", options_.address.Text(),
                         " is down, look-ups miss until it is back: ", why_down_.message()));
}

void RedisPool::Lose(const absl::Status& why, uint64_t era) {
  std::vector<std::unique_ptr<RedisConnection>> gone;  // closed without the lock
  base::MutexLock lock(mutex_);
  if (era != era_) return;
  ++era_;
  up_ = false;
  timeouts_ = 0;
  why_down_ = why;
  gone.swap(idle_);
  PauseAgain();
  gauge_.Set(0);
  keeper_wakes_.Signal();
  changed_.SignalAll();
  TellLoss();
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
  look_again_ = false;
  gauge_.Set(1);
  changed_.SignalAll();
  if (std::exchange(told_, true) && !down_told_) return;
  down_told_ = false;
  base::Log(base::LogLevel::kInfo,
            absl::StrCat("embedding store: Redis at ", options_.address.Text(), " is up"));
}

void RedisPool::Ping() {
  absl::StatusOr<Lease> lease = Take(Now());
  if (!lease.ok()) return;  // in use, hence watched; or lost, and said so
  // It may have to wait for the large answers of others.
  const absl::StatusOr<RedisReply> reply = (*lease)->Command({"PING"}, options_.connect_timeout);
  if (!reply.ok()) {
    lease->Broken(reply.status(), base::ReasonOf(reply.status()) != "REDIS_TIMEOUT");
  } else if (reply->MeansDown()) {
    lease->Broken(base::Error(absl::StatusCode::kUnavailable, "REDIS_DOWN", reply->text),
                  /*down=*/true);
  }
}

// What is there stays in use where nothing better is found.
void RedisPool::Move() {
  uint64_t era = 0;
  {
    base::MutexLock lock(mutex_);
    look_again_ = false;
    next_look_ = Now() + kLookPause;
    era = era_;
  }
  auto addresses = resolver_.Resolve(kResolveTimeout);
  if (!addresses.ok()) return;
  // Also where the name means what it meant: behind one address there may be another server now.
  auto opened = RedisConnection::Open(options_, tls_, *addresses);
  if (!opened.ok()) return LookAgain();
  std::vector<std::unique_ptr<RedisConnection>> gone;  // closed without the lock
  base::MutexLock lock(mutex_);
  if (era != era_) return;
  ++era_;
  timeouts_ = 0;
  gone.swap(idle_);
  idle_.push_back(*std::move(opened));
  if (addresses_ == *addresses) return;
  addresses_ = *std::move(addresses);
  base::Log(base::LogLevel::kInfo, absl::StrCat("embedding store: Redis at ",
                                                options_.address.Text(), " has another address"));
}

void RedisPool::Keep() {
  while (true) {
    bool up = false, look = false;
    {
      base::MutexLock lock(mutex_);
      const absl::Time next = up_ ? Now() + options_.ping_interval : next_try_;
      const uint64_t era = era_;
      const auto looks = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return up_ && look_again_ && Now() >= next_look_;
      };
      while (!stop_ && era == era_ && Now() < next && !looks()) {
        const absl::Time until = up_ && look_again_ ? std::min(next, next_look_) : next;
        keeper_wakes_.WaitFor(mutex_, until - Now());
      }
      if (stop_) return;
      if (era != era_) continue;
      up = up_;
      look = looks();
    }
    if (look) {
      Move();
    } else if (up) {
      Ping();
    } else {
      TryToConnect();
    }
  }
}

}  // namespace tessera::store
