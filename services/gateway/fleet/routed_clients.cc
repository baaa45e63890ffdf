#include "services/gateway/fleet/routed_clients.h"

#include <algorithm>
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

// One answer, wherever it is made. Events of one try come one at a time, and those of the next
// after the last of it; Cancel, RowsReady and Resume come from the side.
class RoutedGenerate final : public DecodeCall,
                             public DecodeEvents,
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

  // --- from the answer ---
  void Cancel() override {
    std::shared_ptr<DecodeCall> call;
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      call = call_;
    }
    if (call) call->Cancel();
  }
  // Only what this try has asked for: an earlier one may have asked for more.
  void RowsReady(const std::vector<uint32_t>& images) override {
    std::shared_ptr<DecodeCall> call;
    std::vector<uint32_t> ready;
    {
      base::MutexLock lock(mutex_);
      for (const uint32_t image : images) {
        const auto asked = std::find(asked_.begin(), asked_.end(), image);
        if (asked == asked_.end()) continue;
        asked_.erase(asked);
        ready.push_back(image);
      }
      call = call_;
    }
    if (call && !ready.empty()) call->RowsReady(ready);
  }
  void Resume() override {
    std::shared_ptr<DecodeCall> call;
    {
      base::MutexLock lock(mutex_);
      call = call_;
    }
    if (call) call->Resume();
  }

  // --- from a replica ---
  void OnRouted(const Routed&) override {}
  void OnAccepted(const v1::Accepted& accepted) override { events_->OnAccepted(accepted); }
  void OnNeedRows(const v1::NeedRows& need) override {
    {
      base::MutexLock lock(mutex_);
      asked_.insert(asked_.end(), need.images().begin(), need.images().end());
    }
    events_->OnNeedRows(need);
  }
  bool OnPiece(v1::TextPiece piece) override {
    told_ = true;
    return events_->OnPiece(std::move(piece));
  }
  void OnDone(const absl::Status& status, const v1::DecodeEnd& end) override {
    bool cancelled = false;
    std::shared_ptr<Replica> gone;  // its set has it still
    {
      base::MutexLock lock(mutex_);
      call_ = nullptr;
      gone = std::move(replica_);
      cancelled = cancelled_;
    }
    if (status.ok() || !IsLost(status, cancelled)) return End(status, end);
    lost_ = Lost(status, "DECODE_LOST");
    if (told_ || cancelled || !tries_.another()) return End(lost_, {});
    Begin();
  }

 private:
  void Begin() {
    absl::StatusOr<ReplicaSet::Picked> picked = tries_.Next(placement_);
    if (!picked.ok()) return End(lost_.ok() ? picked.status() : lost_, {});
    events_->OnRouted({picked->replica->name, picked->reason, picked->redirected});
    const std::shared_ptr<DecodeCall> call =
        picked->replica->decode->Generate(start_, request_, placement_, shared_from_this());
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      replica_ = picked->replica;
      call_ = call;
      asked_.clear();
      cancelled = cancelled_;
    }
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (cancelled) call->Cancel();
    call->Start();
  }

  void End(const absl::Status& status, const v1::DecodeEnd& end) {
    const std::shared_ptr<DecodeEvents> events = std::move(events_);
    events->OnDone(status, end);
  }

  ReplicaSet& replicas_;
  const std::shared_ptr<const v1::DecodeStart> start_;
  const rpc::RequestContext request_;
  const Placement placement_;
  std::shared_ptr<DecodeEvents> events_;
  Tries tries_;        // by events only, as the next two
  bool told_ = false;  // something of the answer
  absl::Status lost_;

  base::Mutex mutex_;
  std::shared_ptr<Replica> replica_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DecodeCall> call_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> asked_ ABSL_GUARDED_BY(mutex_);  // pictures of NeedRows, unanswered
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Rows are of a call of their replica, which waits for its calls when it goes: so it stays for
// them.
struct RowsOfReplica {
  std::shared_ptr<Replica> replica;  // its set has it still
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
    std::shared_ptr<EncodeCall> call;
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      call = call_;
    }
    if (call) call->Cancel();
  }
  void Proceed() override {
    std::shared_ptr<EncodeCall> call;
    {
      base::MutexLock lock(mutex_);
      wanted_ = true;
      call = call_;
    }
    if (call) call->Proceed();
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
    bool cancelled = false, wanted = false;
    {
      base::MutexLock lock(mutex_);
      call_ = call;
      cancelled = cancelled_;
      wanted = wanted_;
    }
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (wanted) call->Proceed();
    if (cancelled) call->Cancel();
    call->Start();
  }

  // The plan of another replica says nothing new: both read the same header.
  void OnPlan(const v1::ImageRef& planned) {
    if (auto on_plan = std::exchange(events_.on_plan, nullptr)) on_plan(planned);
  }

  void OnDone(const ReplicaSet::Picked& picked, absl::StatusOr<EncodedImage> image) {
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      call_ = nullptr;
      cancelled = cancelled_;
    }
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

  base::Mutex mutex_;
  std::shared_ptr<EncodeCall> call_ ABSL_GUARDED_BY(mutex_);  // of the attempt under way
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;  // Proceed was called
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
        start_, request_, affinity_,
        [self = shared_from_this(), replica = picked->replica](auto result) {
          self->OnDone(std::move(result));
        });
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      call_ = call;
      cancelled = cancelled_;
    }
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (cancelled) call->Cancel();
    call->Start();
  }
  void Cancel() override {
    std::shared_ptr<Call> call;
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      call = call_;
    }
    if (call) call->Cancel();
  }

 private:
  void OnDone(absl::StatusOr<v1::DecodeServicePrefillResponse> result) {
    {
      base::MutexLock lock(mutex_);
      call_ = nullptr;
    }
    done_(std::move(result));
  }

  ReplicaSet& replicas_;
  const v1::DecodeServicePrefillRequest start_;
  const rpc::RequestContext request_;
  const std::string affinity_;
  const DecodeClient::PrefillDone done_;

  base::Mutex mutex_;
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
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
