#include "services/gateway/fleet/replica_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"

namespace tessera::gateway {
namespace {

constexpr absl::Duration kRewatch = absl::Milliseconds(100);  // after a watch has ended
constexpr absl::Duration kRetryAfter = absl::Seconds(1);
// Until it is asked for an answer that the system has not given yet.
constexpr absl::Duration kUnansweredInterval = absl::Milliseconds(250);

void CancelAll(const std::vector<std::shared_ptr<Call>>& calls) {
  for (const std::shared_ptr<Call>& call : calls) call->Cancel();
}

}  // namespace

ReplicaSet::ReplicaSet(ReplicaSetOptions options, ReplicaHooks hooks, base::Clock& clock)
    : options_(std::move(options)),
      hooks_(std::move(hooks)),
      clock_(clock),
      lookup_(options_.addresses, hooks_.resolve),
      timers_(std::make_unique<base::Timers>(clock)) {
  CheckSilence();
  if (hooks_.resolve == nullptr) {
    Adopt(options_.addresses);
  } else {
    resolver_ = std::thread([this] { ResolveLoop(); });
  }
}

ReplicaSet::~ReplicaSet() {
  Calls watches;
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    work_.SignalAll();
  }
  lookup_.Cancel();
  if (resolver_.joinable()) resolver_.join();
  timers_ = nullptr;  // none is started from now on
  {
    base::MutexLock lock(mutex_);
    for (auto& [name, member] : members_) {
      member.up = false;
      for (std::shared_ptr<Call>& call : member.calls.TakeAll()) watches.push_back(std::move(call));
      if (member.watch) watches.push_back(member.watch);
    }
  }
  CancelAll(watches);
  watches.clear();  // their replicas wait for them to go
  {
    base::MutexLock lock(mutex_);
    while (watching_ > 0) work_.Wait(mutex_);
    for (auto& [name, member] : members_) PutAway(std::move(member.leased));
    members_.clear();
  }
  while (true) {
    SweepGone();
    base::MutexLock lock(mutex_);
    if (gone_.empty()) return;
    while (!HasUnused()) work_.Wait(mutex_);
  }
}

ReplicaLease ReplicaSet::Lease(Leased& leased) {
  ++leased.leases;
  return ReplicaLease(leased.replica.get(), [this, &leased](Replica*) { Return(leased); });
}

void ReplicaSet::Return(Leased& leased) {
  base::MutexLock lock(mutex_);
  if (--leased.leases == 0 && leased.gone) work_.SignalAll();
}

void ReplicaSet::PutAway(std::unique_ptr<Leased> leased) {
  leased->gone = true;
  gone_.push_back(std::move(leased));
}

bool ReplicaSet::HasUnused() const {
  return std::any_of(gone_.begin(), gone_.end(),
                     [](const auto& leased) { return leased->leases == 0; });
}

void ReplicaSet::SweepGone() {
  std::vector<std::unique_ptr<Leased>> unused;  // they go without the lock
  base::MutexLock lock(mutex_);
  for (std::unique_ptr<Leased>& leased : gone_) {
    if (leased->leases == 0) unused.push_back(std::move(leased));
  }
  std::erase(gone_, nullptr);
}

void ReplicaSet::ResolveLoop() {
  while (true) {
    const bool answered = Resolve();
    const absl::Time due =
        clock_.Now() + (answered ? options_.resolve_interval
                                 : std::min(options_.resolve_interval, kUnansweredInterval));
    do {
      SweepGone();
      base::MutexLock lock(mutex_);
      while (!stop_ && clock_.Now() < due && !HasUnused()) clock_.WaitUntil(work_, mutex_, due);
      if (stop_) return;
    } while (clock_.Now() < due);
  }
}

bool ReplicaSet::Resolve() {
  std::vector<NameLookup::Addresses> found = lookup_.Ask();
  if (found.size() < options_.addresses.size()) return true;  // cancelled
  bool answered = true;
  std::vector<std::string> names;
  for (size_t i = 0; i < found.size(); ++i) {
    answered = answered && !absl::IsDeadlineExceeded(found[i].status());
    base::MutexLock lock(mutex_);
    std::vector<std::string>& known = resolved_[options_.addresses[i]];
    if (found[i].ok() && !found[i]->empty()) known = *std::move(found[i]);
    for (const std::string& name : known) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  Adopt(names);
  return answered;
}

// New ones are watched; those that are gone get no more requests and finish what they have.
void ReplicaSet::Adopt(const std::vector<std::string>& names) {
  std::vector<std::string> added;
  Calls watches;
  {
    base::MutexLock lock(mutex_);
    for (const std::string& name : names_) {
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const auto gone = members_.find(name);
      if (gone->second.watch) watches.push_back(gone->second.watch);
      PutAway(std::move(gone->second.leased));
      members_.erase(gone);
      base::Log(base::LogLevel::kInfo,
                absl::StrCat("gateway: ", options_.service, " ", name, " is no replica any more"));
    }
    names_ = names;
    for (const std::string& name : names) {
      if (!members_.contains(name)) added.push_back(name);
    }
  }
  CancelAll(watches);
  if (!watches.empty()) TellOfChange();
  for (const std::string& name : added) {
    auto leased = std::make_unique<Leased>();
    leased->replica = hooks_.make(name);
    {
      base::MutexLock lock(mutex_);
      Member& member = members_[name];
      member.up = !leased->replica->watch;
      member.leased = std::move(leased);
      CountChange();
    }
    StartWatch(name);
  }
}

void ReplicaSet::StartWatch(const std::string& name) {
  ReplicaLease replica;
  uint64_t number = 0;
  {
    base::MutexLock lock(mutex_);
    const auto found = members_.find(name);
    if (stop_ || found == members_.end() || !found->second.leased->replica->watch) {
      return;
    }
    replica = Lease(*found->second.leased);
    number = found->second.watch_number = ++watches_;
    ++watching_;
  }
  const std::shared_ptr<Call> call = replica->watch(
      options_.load_interval,
      [this, name, number](const ReplicaLoad& load) { OnLoad(name, number, load); },
      [this, name, number](const absl::Status& status) { OnWatchEnd(name, number, status); });
  bool cancel = false;
  {
    base::MutexLock lock(mutex_);
    const auto found = members_.find(name);
    if (found != members_.end() && found->second.watch_number == number) {
      found->second.watch = call;
    } else {
      cancel = true;  // its replica is gone, or is watched anew
    }
  }
  if (cancel) call->Cancel();
  call->Start();  // in any case: its end is counted
}

void ReplicaSet::OnLoad(const std::string& name, uint64_t watch, const ReplicaLoad& load) {
  {
    base::MutexLock lock(mutex_);
    const auto found = members_.find(name);
    if (found == members_.end() || found->second.watch_number != watch) return;
    Member& member = found->second;
    if (!std::exchange(member.up, true)) {
      base::Log(base::LogLevel::kInfo,
                absl::StrCat("gateway: ", options_.service, " ", name, " is up"));
    }
    // What ended before it was heard of, or of a process before, drains no queue of today.
    const bool began_anew = load.requests_ended < member.load.requests_ended;
    const uint64_t before = member.heard == absl::InfinitePast() ? load.requests_ended
                            : began_anew                         ? 0
                                                                 : member.load.requests_ended;
    member.ended += load.requests_ended - before;
    member.silent = false;
    member.heard = clock_.Now();
    member.load = load;
    member.picked = 0;
    member.rate.Observe(member.ended, load.waiting > 0, member.heard);
  }
  TellOfChange();
}

uint64_t ReplicaSet::CountChange() {
  changed_.SignalAll();
  return ++changes_;
}

void ReplicaSet::TellOfChange() {
  std::vector<ReplicaState> states;
  uint64_t number = 0;
  {
    base::MutexLock lock(mutex_);
    number = CountChange();
    if (!hooks_.on_change) return;
    states = StatesNow();
  }
  hooks_.on_change(states, number);
}

uint64_t ReplicaSet::changes() {
  base::MutexLock lock(mutex_);
  return changes_;
}

uint64_t ReplicaSet::AwaitChange(uint64_t seen, absl::Duration timeout) {
  base::MutexLock lock(mutex_);
  const absl::Time deadline = base::RealClock().Now() + timeout;
  while (changes_ <= seen) {
    const absl::Duration left = deadline - base::RealClock().Now();
    if (left <= absl::ZeroDuration() || !changed_.WaitFor(mutex_, left)) break;
  }
  return changes_;
}

void ReplicaSet::OnWatchEnd(const std::string& name, uint64_t watch, const absl::Status& status) {
  {
    base::MutexLock lock(mutex_);
    const auto found = members_.find(name);
    if (found != members_.end() && found->second.watch_number == watch) {
      Member& member = found->second;
      member.watch_number = 0;
      member.watch = nullptr;
      // Its calls stay: gRPC ends those that went with the watch, and what a replica said before it
      // ended may still be on its way to a slow reader.
      if (!status.ok() && std::exchange(member.up, false)) {
        base::Log(base::LogLevel::kWarning,
                  absl::StrCat("gateway: ", options_.service, " ", name, " is down"));
      }
      const absl::Duration wait = status.ok() ? absl::ZeroDuration() : kRewatch;
      if (!stop_) timers_->At(clock_.Now() + wait, [this, name] { StartWatch(name); });
    }
  }
  TellOfChange();
  base::MutexLock lock(mutex_);
  --watching_;  // the set may go from now on
  work_.SignalAll();
}

void ReplicaSet::CheckSilence() {
  Calls lost;
  {
    base::MutexLock lock(mutex_);
    const absl::Time now = clock_.Now();
    // Who was stopped or starved himself has heard nobody; what was said is still to be read.
    const bool late = now - check_due_ > options_.load_silence / 2;
    for (auto& [name, member] : members_) {
      const absl::Time heard = std::max(member.heard, member.calls.Listen(now));
      if (late || !(member.up || member.silent) || !member.leased->replica->watch ||
          now - heard <= options_.load_silence) {
        continue;
      }
      for (std::shared_ptr<Call>& call : member.calls.TakeSilent(
               now, options_.load_silence, options_.begun_patience * options_.load_silence)) {
        lost.push_back(std::move(call));
      }
      if (!std::exchange(member.up, false)) continue;
      member.silent = true;
      base::Log(base::LogLevel::kWarning,
                absl::StrCat("gateway: ", options_.service, " ", name, " has said nothing for ",
                             absl::FormatDuration(now - heard), ": taken out"));
      // A new watch finds out whether it lives; what the old one still says counts no more.
      if (member.watch) lost.push_back(std::exchange(member.watch, nullptr));
      member.watch_number = 0;
      if (!stop_) timers_->At(now + kRewatch, [this, name = name] { StartWatch(name); });
    }
    check_due_ = now + options_.load_silence / (late ? 2 : 4);
    if (!stop_) timers_->At(check_due_, [this] { CheckSilence(); });
  }
  CancelAll(lost);
  if (!lost.empty()) TellOfChange();
}

std::vector<ReplicaView> ReplicaSet::Views() const {
  const absl::Time now = clock_.Now();
  std::vector<ReplicaView> views;
  for (const std::string& name : names_) {
    const auto found = members_.find(name);
    if (found == members_.end()) continue;  // about to be added
    const Member& member = found->second;
    ReplicaView& view = views.emplace_back();
    view.name = name;
    view.up = member.up;
    view.draining = member.load.draining;
    view.full = member.load.full;
    view.broken = member.load.broken;
    view.pressure = member.load.pressure;
    view.picked = member.picked;
    const double rate = member.rate.PerSecond(now);
    if (member.load.waiting > 0 && rate > 0) {
      view.wait = absl::Seconds(static_cast<double>(member.load.waiting) / rate);
    }
  }
  return views;
}

absl::StatusOr<ReplicaSet::Picked> ReplicaSet::Pick(absl::string_view affinity,
                                                    absl::Span<const std::string> tried,
                                                    absl::Duration patience) {
  base::MutexLock lock(mutex_);
  const std::vector<ReplicaView> views = Views();
  Route route = ChooseReplica(views, affinity, tried, patience);
  if (route.outcome == Route::Outcome::kFound) {
    Member& member = members_.find(views[route.index].name)->second;
    ++member.picked;
    return Picked{Lease(*member.leased), std::move(route.reason), route.redirected};
  }
  if (route.outcome == Route::Outcome::kAllFull) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat("every ", options_.service, " replica is at its limit")),
        kRetryAfter);
  }
  return base::WithRetry(
      base::Error(
          absl::StatusCode::kUnavailable,
          absl::StrCat(absl::AsciiStrToUpper(options_.service), "_DOWN"),
          absl::StrCat("no ", options_.service, " replica can be reached (of ", views.size(), ")")),
      kRetryAfter);
}

DecodeWaits ReplicaSet::Waits(absl::string_view affinity) {
  base::MutexLock lock(mutex_);
  const std::vector<ReplicaView> views = Views();
  const Route first = ChooseReplica(views, affinity);
  if (first.outcome != Route::Outcome::kFound) return {};
  const Route least = ChooseReplica(views, affinity, {}, -absl::InfiniteDuration());
  return {views[first.index].wait, views[least.index].wait};
}

void ReplicaSet::CancelWithReplica(const std::string& name, const std::shared_ptr<Call>& call) {
  {
    base::MutexLock lock(mutex_);
    const auto found = members_.find(name);
    if (found == members_.end()) return;  // it finishes what it has
    Member& member = found->second;
    if (member.up) return member.calls.Add(call, call->hearing(), clock_.Now());
  }
  call->Cancel();  // it fell silent since it was picked
}

std::vector<ReplicaState> ReplicaSet::States() {
  base::MutexLock lock(mutex_);
  return StatesNow();
}

std::vector<ReplicaState> ReplicaSet::StatesNow() const {
  std::vector<ReplicaState> states;
  for (ReplicaView& view : Views()) {
    const Member& member = members_.find(view.name)->second;
    ReplicaLoad load = member.load;
    load.requests_ended = member.ended;
    states.push_back({std::move(view), load});
  }
  return states;
}

}  // namespace tessera::gateway
