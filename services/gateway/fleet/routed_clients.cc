#include "services/gateway/fleet/routed_clients.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"

namespace tessera::gateway {
namespace {

constexpr int kMostTries = 2;

// Whether a replica is lost rather than of another opinion. What nobody has cancelled was cancelled
// with its replica.
bool IsLost(const absl::Status& status, bool cancelled) {
  if (absl::IsCancelled(status)) return !cancelled;
  return absl::IsUnavailable(status) && base::ReasonOf(status) != "ROWS_MISSING";
}

// As the client is told of it.
absl::Status Lost(const absl::Status& status, const char* reason) {
  if (!base::ReasonOf(status).empty()) return status;
  return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, reason,
                                     absl::StrCat("the replica that worked on it was lost (",
                                                  std::string(status.message()), "); ask again")),
                         absl::Seconds(1));
}

// Tries of one call, in turn.
class Tries {
 public:
  explicit Tries(ReplicaSet& replicas) : replicas_(replicas) {}

  absl::StatusOr<ReplicaSet::Picked> Next(const Placement& placement) {
    absl::StatusOr<ReplicaSet::Picked> picked =
        replicas_.Pick(placement.affinity, names_, placement.patience);
    if (picked.ok()) names_.push_back(picked->replica->name);
    return picked;
  }
  bool another() const { return names_.size() < kMostTries; }

 private:
  ReplicaSet& replicas_;
  std::vector<std::string> names_;
};

// The call under way of a routed one, which is cancelled from the side. Any thread.
template <typename CallType>
class Attempt {
 public:
  // Whether it is cancelled before it has begun.
  bool Begin(std::shared_ptr<CallType> call) {
    base::MutexLock lock(mutex_);
    call_ = std::move(call);
    return cancelled_;
  }
  // Whether it was cancelled.
  bool End() {
    std::shared_ptr<CallType> call;  // goes without the lock
    base::MutexLock lock(mutex_);
    call.swap(call_);
    return cancelled_;
  }
  // The call to be cancelled; null: none is under way.
  std::shared_ptr<CallType> Cancel() {
    base::MutexLock lock(mutex_);
    cancelled_ = true;
    return call_;
  }
  std::shared_ptr<CallType> call() {
    base::MutexLock lock(mutex_);
    return call_;
  }

 private:
  base::Mutex mutex_;
  std::shared_ptr<CallType> call_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// One answer, wherever it is made; what a replica says goes to the answer straight. Events of one
// attempt come one at a time, and those of the next after the last of it; Cancel, RowsReady and
// Resume come from the side.
class RoutedGenerate final : public DecodeCall,
                             public std::enable_shared_from_this<RoutedGenerate> {
 public:
  RoutedGenerate(ReplicaSet& replicas, std::shared_ptr<const v1::DecodeStart> start,
                 const rpc::RequestContext& request, Placement placement,
                 std::shared_ptr<DecodeEvents> events)
      : replicas_(replicas),
        start_(std::move(start)),
        request_(request),
        placement_(std::move(placement)),
        events_(std::move(events)),
        tries_(replicas) {}

  void Start() override { Begin(); }
  void Cancel() override {
    if (const auto call = attempt_.Cancel()) call->Cancel();
  }
  void RowsReady(const std::vector<uint32_t>& images) override {
    if (const auto call = attempt_.call()) call->RowsReady(images);
  }
  void Resume() override {
    if (const auto call = attempt_.call()) call->Resume();
  }

 private:
  void Begin() {
    absl::StatusOr<ReplicaSet::Picked> picked = tries_.Next(placement_);
    if (!picked.ok()) return End({.status = lost_.ok() ? picked.status() : lost_});
    events_->OnRouted({picked->replica->name, picked->reason, picked->redirected});
    const std::shared_ptr<DecodeCall> call =
        picked->replica->decode->Generate(start_, request_, events_,
                                          [self = shared_from_this(), lease = picked->replica](
                                              const AttemptEnd& end) { self->OnDone(end); });
    const bool cancelled = attempt_.Begin(call);
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (cancelled) call->Cancel();
    call->Start();
  }

  void OnDone(const AttemptEnd& end) {
    const bool cancelled = attempt_.End();
    if (end.status.ok() || !IsLost(end.status, cancelled)) return End(end);
    lost_ = Lost(end.status, "DECODE_LOST");
    if (end.has_pieces || cancelled || !tries_.another()) return End({.status = lost_});
    Begin();
  }

  void End(const AttemptEnd& end) {
    const std::shared_ptr<DecodeEvents> events = std::move(events_);
    events->OnDone(end.status, end.end);
  }

  ReplicaSet& replicas_;
  const std::shared_ptr<const v1::DecodeStart> start_;
  const rpc::RequestContext request_;
  const Placement placement_;
  std::shared_ptr<DecodeEvents> events_;  // by one attempt after another, and so tries_ and lost_
  Tries tries_;
  absl::Status lost_;
  Attempt<DecodeCall> attempt_;
};

// Rows are of a call of their replica, which waits for its calls when it goes: so it stays for
// them.
struct RowsOfReplica {
  ReplicaLease replica;
  std::shared_ptr<const void> rows;  // go first
};

// One picture, wherever it is encoded. Events of one attempt come one at a time, and those of the
// next after the last of it; Cancel and Proceed come from the side.
class RoutedEncode final : public EncodeCall, public std::enable_shared_from_this<RoutedEncode> {
 public:
  RoutedEncode(ReplicaSet& replicas, const Picture& picture, bool likely_new,
               const rpc::RequestContext& request, EncodeEvents events)
      : replicas_(replicas),
        picture_(picture),
        likely_new_(likely_new),
        request_(request),
        placement_{.affinity = absl::StrCat(picture.tenant, "\n", base::ToHex(picture.digest))},
        events_(std::move(events)),
        tries_(replicas) {}

  void Start() override { Begin(); }
  void Cancel() override {
    if (const auto call = attempt_.Cancel()) call->Cancel();
  }
  void Proceed() override {
    wanted_ = true;
    if (const auto call = attempt_.call()) call->Proceed();
  }

 private:
  void Begin() {
    absl::StatusOr<ReplicaSet::Picked> picked = tries_.Next(placement_);
    if (!picked.ok()) return End(lost_.ok() ? picked.status() : lost_);
    const std::shared_ptr<EncodeCall> call = picked->replica->vision->Encode(
        picture_, likely_new_, request_,
        {[self = shared_from_this()](const v1::ImageRef& planned) { self->OnPlan(planned); },
         [self = shared_from_this(), picked = *picked](absl::StatusOr<EncodedImage> image) {
           self->OnDone(picked, std::move(image));
         }});
    const bool cancelled = attempt_.Begin(call);
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (wanted_) call->Proceed();
    if (cancelled) call->Cancel();
    call->Start();
  }

  // The plan of another replica says nothing new: both read the same header.
  void OnPlan(const v1::ImageRef& planned) {
    if (auto on_plan = std::exchange(events_.on_plan, nullptr)) on_plan(planned);
  }

  void OnDone(const ReplicaSet::Picked& picked, absl::StatusOr<EncodedImage> image) {
    const bool cancelled = attempt_.End();
    if (image.ok()) {
      image->replica = picked.replica->name;
      image->replica_reason = picked.reason;
      if (image->rows) {
        image->rows =
            std::make_shared<RowsOfReplica>(RowsOfReplica{picked.replica, std::move(image->rows)});
      }
    } else if (IsLost(image.status(), cancelled)) {
      lost_ = Lost(image.status(), "VISION_LOST");
      if (!cancelled && tries_.another()) return Begin();
      image = lost_;
    }
    End(std::move(image));
  }

  void End(absl::StatusOr<EncodedImage> image) {
    std::exchange(events_, {}).on_done(std::move(image));
  }

  ReplicaSet& replicas_;
  const Picture picture_;
  const bool likely_new_;
  const rpc::RequestContext request_;
  const Placement placement_;
  EncodeEvents events_;  // by one attempt after another, and so tries_ and lost_
  Tries tries_;
  absl::Status lost_;
  Attempt<EncodeCall> attempt_;
  std::atomic<bool> wanted_{false};  // Proceed was called
};

// Reading ahead, which is not tried twice.
class RoutedPrefill final : public Call, public std::enable_shared_from_this<RoutedPrefill> {
 public:
  RoutedPrefill(ReplicaSet& replicas, const v1::DecodeServicePrefillRequest& start,
                const rpc::RequestContext& request, const std::string& affinity,
                DecodeClient::PrefillDone done)
      : replicas_(replicas),
        start_(start),
        request_(request),
        affinity_(affinity),
        done_(std::move(done)) {}

  void Start() override {
    absl::StatusOr<ReplicaSet::Picked> picked = replicas_.Pick(affinity_);
    if (!picked.ok()) return done_(picked.status());
    const std::shared_ptr<Call> call = picked->replica->decode->Prefill(
        start_, request_, [self = shared_from_this(), lease = picked->replica](auto result) {
          self->attempt_.End();
          self->done_(std::move(result));
        });
    const bool cancelled = attempt_.Begin(call);
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (cancelled) call->Cancel();
    call->Start();
  }
  void Cancel() override {
    if (const auto call = attempt_.Cancel()) call->Cancel();
  }

 private:
  ReplicaSet& replicas_;
  const v1::DecodeServicePrefillRequest start_;
  const rpc::RequestContext request_;
  const std::string affinity_;
  const DecodeClient::PrefillDone done_;
  Attempt<Call> attempt_;
};

class RoutedVisionClient final : public VisionClient {
 public:
  explicit RoutedVisionClient(ReplicaSet& replicas) : replicas_(replicas) {}
  std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool likely_new,
                                     const rpc::RequestContext& request,
                                     EncodeEvents events) override {
    return std::make_shared<RoutedEncode>(replicas_, picture, likely_new, request,
                                          std::move(events));
  }

 private:
  ReplicaSet& replicas_;
};

class RoutedDecodeClient final : public DecodeClient {
 public:
  explicit RoutedDecodeClient(ReplicaSet& replicas) : replicas_(replicas) {}
  std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                       const rpc::RequestContext& request,
                                       const Placement& placement,
                                       std::shared_ptr<DecodeEvents> events) override {
    return std::make_shared<RoutedGenerate>(replicas_, std::move(start), request, placement,
                                            std::move(events));
  }
  DecodeWaits Waits(const std::string& affinity) override { return replicas_.Waits(affinity); }
  std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                const rpc::RequestContext& request, const std::string& affinity,
                                PrefillDone done) override {
    return std::make_shared<RoutedPrefill>(replicas_, start, request, affinity, std::move(done));
  }

 private:
  ReplicaSet& replicas_;
};

}  // namespace

std::unique_ptr<VisionClient> MakeRoutedVisionClient(ReplicaSet& replicas) {
  return std::make_unique<RoutedVisionClient>(replicas);
}

std::unique_ptr<DecodeClient> MakeRoutedDecodeClient(ReplicaSet& replicas) {
  return std::make_unique<RoutedDecodeClient>(replicas);
}

}  // namespace tessera::gateway
