#include "services/gateway/pictures/ahead_prefill.h"

#include <utility>
#include <vector>

namespace tessera::gateway {
namespace {

constexpr size_t kMostAhead = 16;  // under way; decode has its own, smaller limit

}  // namespace

void AheadPrefill::Start(const std::string& tenant, const std::string& affinity,
                         const ResolvedImage& image, const rpc::RequestContext& request) {
  v1::DecodeServicePrefillRequest start;
  start.set_tenant(tenant);
  *start.add_images() = image.ref;
  std::shared_ptr<Call> call;
  {
    base::MutexLock lock(mutex_);
    if (closed_ || calls_.size() >= kMostAhead) return;
    const uint64_t number = next_++;
    call = decode_.Prefill(
        start, request, affinity,
        [self = shared_from_this(), number, rows = image.rows](const auto&) mutable {
          rows = nullptr;
          self->OnDone(number);
        });
    calls_.emplace(number, call);
  }
  call->Start();
}

void AheadPrefill::Close() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    base::MutexLock lock(mutex_);
    closed_ = true;
    for (const auto& [number, call] : calls_) calls.push_back(call);
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
