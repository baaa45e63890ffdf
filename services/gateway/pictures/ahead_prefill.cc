#include "services/gateway/pictures/ahead_prefill.h"

#include <utility>
#include <vector>

namespace tessera::gateway {
namespace {

constexpr size_t kMostAhead = 16;  // under way; decode has its own, smaller limit

}  // namespace

void AheadPrefill::Start(const std::string& tenant, const std::string& affinity,
                         const ResolvedImage& image, const rpc::RequestContext& request) {
  uint64_t number = 0;
  {
    base::MutexLock lock(mutex_);
    if (closed_ || calls_.size() >= kMostAhead) return;
    number = next_++;
    calls_.emplace(number, nullptr);
  }
  v1::DecodeServicePrefillRequest start;
  start.set_tenant(tenant);
  *start.add_images() = image.ref;
  const std::shared_ptr<Call> call =
      decode_.Prefill(start, request, affinity,
                      [self = shared_from_this(), number, rows = image.rows](const auto&) mutable {
                        rows = nullptr;
                        self->OnDone(number);
                      });
  {
    base::MutexLock lock(mutex_);
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;  // it has ended
    found->second = call;
    if (!closed_) return;
  }
  call->Cancel();
}

void AheadPrefill::Close() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [number, call] : calls_) {
      if (call != nullptr) calls.push_back(call);
    }
  }
  for (const std::shared_ptr<Call>& call : calls) call->Cancel();
  base::MutexLock lock(mutex_);
  while (!calls_.empty()) done_.Wait(mutex_);
}

void AheadPrefill::OnDone(uint64_t number) {
  base::MutexLock lock(mutex_);
  calls_.erase(number);
  done_.SignalAll();
}

}  // namespace tessera::gateway
