#include "services/gateway/admission/admission_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::gateway {

int AdmissionQueue::ShareOf(int places) const {
  return std::max(1, static_cast<int>(places * limits_.tenant_share));
}

absl::Status AdmissionQueue::Full(const char* reason, const std::string& message,
                                  absl::Time now) const {
  return base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, reason,
                                     absl::StrCat(message, "; ask again later")),
                         RetryAfter(now));
}

void AdmissionQueue::SetTotal(int64_t tokens) {
  if (reported_) return;
  free_tokens_ = tokens;
  bounded_ = tokens > 0;
}

absl::Status AdmissionQueue::Enter(const std::string& tenant, absl::Time now) {
  if (places_ >= limits_.max_requests) {
    return Full("QUEUE_FULL",
                absl::StrCat(limits_.max_requests, " requests are under way (--max_requests)"),
                now);
  }
  const auto known = tenants_.find(tenant);
  const int share = ShareOf(limits_.max_requests);
  if (known != tenants_.end() && known->second.places >= share) {
    return Full("QUOTA_EXCEEDED",
                absl::StrCat(share, " requests of this tenant are under way (--tenant_share)"),
                now);
  }
  ++tenants_[tenant].places;
  ++places_;
  return absl::OkStatus();
}

void AdmissionQueue::Leave(const std::string& tenant, absl::Time now) {
  CHECK(places_ > 0 && tenants_[tenant].places > 0);
  --tenants_[tenant].places;
  --places_;
  ++ended_count_;
  Forget(tenant);
  Observe(now);
}

void AdmissionQueue::Forget(const std::string& name) {
  const auto tenant = tenants_.find(name);
  if (tenant != tenants_.end() && tenant->second.places == 0 && tenant->second.queued.empty() &&
      tenant->second.tokens == 0) {
    tenants_.erase(tenant);
  }
}

bool AdmissionQueue::Fits(int64_t tokens) const {
  return !bounded_ || admitted_count_ == 0 || charged_tokens_ + tokens <= free_tokens_;
}

void AdmissionQueue::Admit(Entry& entry, Tenant& tenant) {
  entry.state = State::kPending;
  tenant.tokens += entry.request.tokens;
  tenant.turn = ++turn_count_;
  charged_tokens_ += entry.request.tokens;
  admitted_tokens_ += entry.request.tokens;
  ++admitted_count_;
}

AdmissionQueue::Outcome AdmissionQueue::Ask(Ticket ticket, Request request, absl::Time now,
                                            absl::Status& refusal) {
  CHECK(!entries_.contains(ticket));
  Tenant& tenant = tenants_[request.tenant];
  if (queued_count_ == 0 && Fits(request.tokens)) {
    Entry& entry = entries_[ticket];
    entry.request = std::move(request);
    Admit(entry, tenant);
    return Outcome::kAdmitted;
  }
  refusal = absl::OkStatus();
  const int share = ShareOf(limits_.max_queued);
  const double rate = rate_.PerSecond(now);
  const absl::Duration wait =
      rate > 0 ? absl::Seconds(static_cast<double>(queued_count_ + decode_waiting_ + 1) / rate)
               : absl::ZeroDuration();
  if (queued_count_ >= limits_.max_queued) {
    refusal =
        Full("QUEUE_FULL",
             absl::StrCat(queued_count_, " requests wait for room already (--max_queued)"), now);
  } else if (static_cast<int>(tenant.queued.size()) >= share) {
    refusal =
        Full("QUOTA_EXCEEDED",
             absl::StrCat(share, " requests of this tenant wait for room (--tenant_share)"), now);
  } else if (limits_.refuse_late && rate > 0 && now + wait >= request.deadline) {
    refusal = base::WithFact(
        base::Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                    absl::StrCat("it would wait about ", absl::FormatDuration(wait), " for room, ",
                                 absl::FormatDuration(request.deadline - now),
                                 " are left; ask again later or give it more time")),
        "stage", "admission");
  }
  if (!refusal.ok()) {
    Forget(request.tenant);
    return Outcome::kRefused;
  }
  tenant.queued.push_back(ticket);
  ++queued_count_;
  entries_[ticket].request = std::move(request);
  Observe(now);
  return Outcome::kQueued;
}

void AdmissionQueue::Began(Ticket ticket) {
  const auto entry = entries_.find(ticket);
  if (entry == entries_.end() || entry->second.state != State::kPending) return;
  entry->second.state = State::kBegun;
  if (reported_) begun_tickets_.push_back(ticket);
}

bool AdmissionQueue::Release(Ticket ticket, absl::Time now) {
  const auto found = entries_.find(ticket);
  if (found == entries_.end()) return false;
  const Entry entry = std::move(found->second);
  entries_.erase(found);
  const int64_t tokens = entry.request.tokens;
  Tenant& tenant = tenants_[entry.request.tenant];
  if (entry.state == State::kQueued) {
    --queued_count_;
    std::erase(tenant.queued, ticket);
  } else {
    --admitted_count_;
    tenant.tokens -= tokens;
    admitted_tokens_ -= tokens;
    if (entry.state == State::kCovered) {
      free_tokens_ += tokens;  // until the next report says it exactly
    } else {
      charged_tokens_ -= tokens;
    }
  }
  Forget(entry.request.tenant);
  Observe(now);
  return true;
}

void AdmissionQueue::Report(const DecodeRoom& room, absl::Time now) {
  if (room.number < report_number_) return;
  report_number_ = room.number;
  reported_ = true;
  bounded_ = room.replicas > 0;
  free_tokens_ = room.free_tokens;
  decode_waiting_ = room.waiting;
  for (const Ticket ticket : begun_tickets_) {
    const auto entry = entries_.find(ticket);
    if (entry == entries_.end() || entry->second.state != State::kBegun) continue;
    entry->second.state = State::kCovered;
    charged_tokens_ -= entry->second.request.tokens;
  }
  begun_tickets_.clear();
  rate_.Observe(room.ended, queued_count_ > 0 || room.waiting > 0, now);
}

// Reports count what ends in decode for other gateways too; without them ours is all there is.
void AdmissionQueue::Observe(absl::Time now) {
  if (reported_) return;
  rate_.Observe(ended_count_, queued_count_ > 0 || places_ + 1 >= limits_.max_requests, now);
}

AdmissionQueue::Tenant* AdmissionQueue::NextTenant() {
  Tenant* next = nullptr;
  for (auto& [name, tenant] : tenants_) {
    if (tenant.queued.empty()) continue;
    if (next == nullptr ||
        std::pair(tenant.tokens, tenant.turn) < std::pair(next->tokens, next->turn)) {
      next = &tenant;
    }
  }
  return next;
}

std::optional<AdmissionQueue::Ticket> AdmissionQueue::Next() {
  Tenant* tenant = NextTenant();
  if (tenant == nullptr) return std::nullopt;
  const Ticket ticket = tenant->queued.front();
  Entry& entry = entries_[ticket];
  if (!Fits(entry.request.tokens)) return std::nullopt;
  tenant->queued.pop_front();
  --queued_count_;
  Admit(entry, *tenant);
  return ticket;
}

absl::Duration AdmissionQueue::RetryAfter(absl::Time now) const {
  return rate_.TimeFor(queued_count_ + decode_waiting_ + 1, now);
}

}  // namespace tessera::gateway
