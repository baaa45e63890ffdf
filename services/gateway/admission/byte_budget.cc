#include "services/gateway/admission/byte_budget.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"
#include "common/base/mutex.h"

namespace tessera::gateway {

struct ByteBudget::State {
  explicit State(Limits l)
      : limits(std::move(l)),
        most(std::max(limits.bytes, limits.least)),
        share(std::max(static_cast<size_t>(static_cast<double>(most) * limits.tenant_share),
                       limits.least)) {}

  const Limits limits;
  const size_t most, share;
  base::Mutex mutex;
  size_t held ABSL_GUARDED_BY(mutex) = 0;
  absl::flat_hash_map<std::string, size_t> tenants ABSL_GUARDED_BY(mutex);  // that hold something
};

ByteBudget::ByteBudget(Limits limits) : state_(std::make_shared<State>(std::move(limits))) {}

ByteBudget::Hold& ByteBudget::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  state_ = std::move(other.state_);
  tenant_ = std::move(other.tenant_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::Status ByteBudget::Hold::Grow(size_t bytes) {
  if (bytes <= bytes_) return absl::OkStatus();
  if (state_ != nullptr) {
    const size_t more = bytes - bytes_;
    base::MutexLock lock(state_->mutex);
    if (more > state_->most - state_->held) return state_->limits.full;
    const auto tenant = state_->tenants.find(tenant_);
    const size_t has = tenant == state_->tenants.end() ? 0 : tenant->second;
    if (more > state_->share - has) {
      return base::WithRetry(
          base::Error(absl::StatusCode::kResourceExhausted, "QUOTA_EXCEEDED",
                      absl::StrCat("requests of this tenant hold ", has, " of the ", state_->share,
                                   " ", state_->limits.unit,
                                   " that they may (--tenant_share); ask again later")),
          absl::Seconds(1));
    }
    state_->held += more;
    state_->tenants[tenant_] = has + more;
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

void ByteBudget::Hold::Reset() {
  const size_t bytes = std::exchange(bytes_, 0);
  if (state_ == nullptr || bytes == 0) return;
  base::MutexLock lock(state_->mutex);
  state_->held -= bytes;
  const auto tenant = state_->tenants.find(tenant_);
  tenant->second -= bytes;
  if (tenant->second == 0) state_->tenants.erase(tenant);
}

}  // namespace tessera::gateway
