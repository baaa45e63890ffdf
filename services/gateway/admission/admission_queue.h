#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/drain_rate.h"

namespace tessera::gateway {

struct AdmissionLimits {
  int max_requests = 256;  // under way: those that wait, those that are answered, uploads
  int max_queued = 128;    // of these, waiting for room in decode
  // What one tenant may have of both, at least one. 1 where there is one tenant only.
  double tenant_share = 1;
  bool refuse_late = true;  // whoever would wait beyond his deadline is refused at once
};

// What decode's replicas that take work say of themselves, together.
struct DecodeRoom {
  int replicas = 0;         // none: nothing is held back, so that requests fail at once
  int64_t free_tokens = 0;  // of their KV caches
  int64_t waiting = 0;      // requests in their queues
  uint64_t ended = 0;       // requests, since their start
  uint64_t number = 0;      // ascending: one that comes behind a higher one says nothing
};

// Who may go to decode, and who waits. A request takes the tokens that it may need at most from
// what decode reported free; it is not counted any more with the first report after it had its
// first token, which shows what it really takes. What is free goes to the tenant that has the
// fewest tokens under way, his requests in their order; whoever is next waits until there is room
// for him, so that large requests are not starved by small ones. One request is always let in:
// decode has the last word. Pure: no thread, no clock; guarded by its user.
class AdmissionQueue {
 public:
  using Ticket = uint64_t;

  explicit AdmissionQueue(const AdmissionLimits& limits) : limits_(limits) {}
  // What decode's KV caches hold, until the first report. Before it is known nothing is held back.
  void SetTotal(int64_t tokens);

  // --- places: every call under way has one, whatever it does ---
  // RESOURCE_EXHAUSTED with a retry, taking nothing: QUEUE_FULL, or QUOTA_EXCEEDED for a tenant
  // that has its share.
  absl::Status Enter(const std::string& tenant, absl::Time now);
  void Leave(const std::string& tenant, absl::Time now);
  int places() const { return places_; }

  // --- turns: of those that go to decode ---
  enum class Outcome { kAdmitted, kQueued, kRefused };
  struct Request {
    std::string tenant;
    int64_t tokens = 0;  // prompt and answer, at most
    absl::Time deadline = absl::InfiniteFuture();
  };
  // `refusal`: RESOURCE_EXHAUSTED as Enter, or DEADLINE_EXCEEDED (DEADLINE) where the wait would be
  // longer than the time that is left.
  Outcome Ask(Ticket ticket, Request request, absl::Time now, absl::Status& refusal);
  // It had its first token.
  void Began(Ticket ticket);
  // It has ended, or waits no more. False: not known (any more).
  bool Release(Ticket ticket, absl::Time now);
  // What decode says now.
  void Report(const DecodeRoom& room, absl::Time now);
  // The next one to be let in, which is admitted by this; to be called until there is none.
  std::optional<Ticket> Next();

  // Until a request that came now would be let in, or could come again.
  absl::Duration RetryAfter(absl::Time now) const;
  int queued() const { return queued_count_; }
  int64_t tokens_admitted() const { return admitted_tokens_; }
  int64_t tokens_free() const { return free_tokens_ - charged_tokens_; }

 private:
  enum class State { kQueued, kPending, kBegun, kCovered };
  struct Entry {
    Request request;
    State state = State::kQueued;
  };
  struct Tenant {
    int places = 0;
    int64_t tokens = 0;  // admitted
    std::deque<Ticket> queued;
    uint64_t turn = 0;  // when it was last let in: of equals the one that waits longest
  };

  int ShareOf(int places) const;
  bool Fits(int64_t tokens) const;
  void Admit(Entry& entry, Tenant& tenant);
  Tenant* NextTenant();
  void Observe(absl::Time now);
  void Forget(const std::string& name);
  absl::Status Full(const char* reason, const std::string& message, absl::Time now) const;

  const AdmissionLimits limits_;
  absl::flat_hash_map<Ticket, Entry> entries_;
  absl::flat_hash_map<std::string, Tenant> tenants_;
  int places_ = 0;
  int queued_count_ = 0;
  int admitted_count_ = 0;
  int64_t admitted_tokens_ = 0;
  int64_t free_tokens_ = 0;
  int64_t charged_tokens_ = 0;  // of free_tokens_, by requests that no report has shown yet
  bool bounded_ = false;
  bool reported_ = false;
  uint64_t report_number_ = 0;  // of the last
  int64_t decode_waiting_ = 0;
  uint64_t turn_count_ = 0;
  uint64_t ended_count_ = 0;           // requests of ours
  std::vector<Ticket> begun_tickets_;  // since the last report; may hold tickets that were released
  base::DrainRate rate_;
};

}  // namespace tessera::gateway
