#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/admission/admission_queue.h"
#include "services/gateway/admission/byte_budget.h"

namespace tessera::gateway {

// The door of the gateway: AdmissionQueue with a lock, a clock and callbacks. Any thread; no
// callback runs while the lock is held.
class Admission {
 public:
  using Ticket = AdmissionQueue::Ticket;

  // `clock` outlives it.
  Admission(const AdmissionLimits& limits, base::Clock& clock)
      : clock_(clock), queue_(limits), timers_(clock) {}

  // A place among the calls under way, given back when this goes.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept
        : admission_(std::exchange(other.admission_, nullptr)), tenant_(std::move(other.tenant_)) {}
    Place& operator=(Place&& other) noexcept {
      Reset();
      admission_ = std::exchange(other.admission_, nullptr);
      tenant_ = std::move(other.tenant_);
      return *this;
    }
    ~Place() { Reset(); }
    void Reset() {
      if (admission_ != nullptr) std::exchange(admission_, nullptr)->Leave(tenant_);
    }

   private:
    friend class Admission;
    Place(Admission& admission, std::string tenant)
        : admission_(&admission), tenant_(std::move(tenant)) {}
    Admission* admission_ = nullptr;
    std::string tenant_;
  };
  // RESOURCE_EXHAUSTED (QUEUE_FULL, QUOTA_EXCEEDED) or, while draining, UNAVAILABLE, all with a
  // retry.
  absl::StatusOr<Place> Enter(const std::string& tenant);

  Ticket NewTicket() { return ++tickets_; }
  // Calls `done`, on any thread, perhaps before this returns: OK when it is the request's turn,
  // which it has until Release; else why not (AdmissionQueue::Ask, or its deadline has passed).
  // Never after a Release that came first.
  void Ask(Ticket ticket, AdmissionQueue::Request request,
           std::function<void(const absl::Status&)> done);
  // It had its first token.
  void Began(Ticket ticket);
  // It has ended, or waits no more. Of a ticket that is not known nothing happens.
  void Release(Ticket ticket);

  // What decode's caches hold together, for as long as it does not report.
  void SetTotal(int64_t tokens);
  void Report(const DecodeRoom& room);

  // Until a request that is refused now could come again.
  absl::Duration RetryAfter();

  // No new place from now on; returns when all are given back or `deadline` has passed.
  void Drain(absl::Time deadline);

  struct Stats {
    int places = 0;
    int queued = 0;
    int64_t tokens_admitted = 0;
    int64_t tokens_free = 0;
  };
  Stats stats();
  int inflight() { return stats().places; }

 private:
  struct Waiting {
    std::function<void(const absl::Status&)> done;
    base::Timers::Id expiry = 0;
  };

  void Leave(const std::string& tenant);
  void Expire(Ticket ticket);
  // Lets in whoever is next, on one thread at a time.
  void Pump();

  base::Clock& clock_;
  std::atomic<Ticket> tickets_{0};
  base::Mutex mutex_;
  base::CondVar departure_;
  AdmissionQueue queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Ticket, Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool pumping_ ABSL_GUARDED_BY(mutex_) = false;
  base::Timers timers_;  // last: what is due uses everything above
};

// A call that has been let in.
struct AdmittedCall {
  rpc::RequestContext request;
  absl::Time arrival;
  std::string tenant;
  Admission::Place place;
  ByteBudget::Hold held = {};  // of what it brought, where that is bounded
};

}  // namespace tessera::gateway
