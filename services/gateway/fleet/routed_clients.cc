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
  RoutedGenerate(ReplicaSet& replicas, const v1::DecodeStart& start,
                 const rpc::RequestContext& request, Placement placement,
                 std::shared_ptr<DecodeEvents> events)
      : replicas_(replicas),
        start_(start),
        request_(request),
        placement_(std::move(placement)),
        events_(std::move(events)),
        tries_(replicas) {}

  void Begin() {
    absl::StatusOr<ReplicaSet::Picked> picked = tries_.Next(placement_);
    if (!picked.ok()) return End(lost_.ok() ? picked.status() : lost_, {});
    uint64_t number = 0;
    {
      base::MutexLock lock(mutex_);
      number = ++try_;
      replica_ = picked->replica;
      asked_.clear();
    }
    events_->OnRouted({picked->replica->name, picked->reason, picked->redirected});
    const std::shared_ptr<DecodeCall> call =
        picked->replica->decode->Generate(start_, request_, placement_, shared_from_this());
    bool cancel = false, resume = false;
    std::vector<uint32_t> ready;
    {
      base::MutexLock lock(mutex_);
      if (try_ != number) return;  // it has ended, and the next has begun or there is none
      call_ = call;
      cancel = cancelled_;
      resume = std::exchange(resume_, false);
      ready.swap(ready_);
    }
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (!ready.empty()) call->RowsReady(ready);
    if (resume) call->Resume();
    if (cancel) call->Cancel();
  }

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
      if (!call) ready_.insert(ready_.end(), ready.begin(), ready.end());
    }
    if (call && !ready.empty()) call->RowsReady(ready);
  }
  void Resume() override {
    std::shared_ptr<DecodeCall> call;
    {
      base::MutexLock lock(mutex_);
      call = call_;
      if (!call) resume_ = true;
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
      ++try_;
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
  void End(const absl::Status& status, const v1::DecodeEnd& end) {
    const std::shared_ptr<DecodeEvents> events = std::move(events_);
    events->OnDone(status, end);
  }

  ReplicaSet& replicas_;
  const v1::DecodeStart start_;
  const rpc::RequestContext request_;
  const Placement placement_;
  std::shared_ptr<DecodeEvents> events_;
  Tries tries_;        // by events only, as the next two
  bool told_ = false;  // something of the answer
  absl::Status lost_;

  base::Mutex mutex_;
  uint64_t try_ ABSL_GUARDED_BY(mutex_) = 0;  // one more at each begin and each end
  std::shared_ptr<Replica> replica_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DecodeCall> call_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> asked_ ABSL_GUARDED_BY(mutex_);  // pictures of NeedRows, unanswered
  // Came before call_ was known here.
  std::vector<uint32_t> ready_ ABSL_GUARDED_BY(mutex_);
  bool resume_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Rows are of a call of their replica, which waits for its calls when it goes: so it stays for
// them.
struct RowsOfReplica {
  std::shared_ptr<Replica> replica;  // its set has it still
  std::shared_ptr<const void> rows;  // go first
};

// One picture.
class RoutedEncode final : public Call, public std::enable_shared_from_this<RoutedEncode> {
 public:
  RoutedEncode(ReplicaSet& replicas, const Picture& picture, const rpc::RequestContext& request,
               VisionClient::EncodeDone done)
      : replicas_(replicas),
        picture_(picture),
        request_(request),
        placement_{.affinity = absl::StrCat(picture.tenant, "\n", base::ToHex(picture.digest))},
        done_(std::move(done)),
        tries_(replicas) {}

  void Begin() {
    absl::StatusOr<ReplicaSet::Picked> picked = tries_.Next(placement_);
    if (!picked.ok()) {
      std::exchange(done_, nullptr)(lost_.ok() ? picked.status() : lost_);
      return;
    }
    uint64_t number = 0;
    {
      base::MutexLock lock(mutex_);
      number = ++try_;
    }
    const std::shared_ptr<Call> call = picked->replica->vision->Encode(
        picture_, request_,
        [self = shared_from_this(), picked = *picked](absl::StatusOr<EncodedImage> image) {
          self->OnDone(picked, std::move(image));
        });
    bool cancel = false;
    {
      base::MutexLock lock(mutex_);
      if (try_ != number) return;
      call_ = call;
      cancel = cancelled_;
    }
    if (call == nullptr) return;
    replicas_.CancelWithReplica(picked->replica->name, call);
    if (cancel) call->Cancel();
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
  void OnDone(const ReplicaSet::Picked& picked, absl::StatusOr<EncodedImage> image) {
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      ++try_;
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
    std::exchange(done_, nullptr)(std::move(image));
  }

  ReplicaSet& replicas_;
  const Picture picture_;
  const rpc::RequestContext request_;
  const Placement placement_;
  VisionClient::EncodeDone done_;  // by one try after another, as the next two
  Tries tries_;
  absl::Status lost_;

  base::Mutex mutex_;
  uint64_t try_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Call> call_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class RoutedVisionClient final : public VisionClient {
 public:
  explicit RoutedVisionClient(ReplicaSet& replicas) : replicas_(replicas) {}
  std::shared_ptr<Call> Encode(const Picture& picture, const rpc::RequestContext& request,
                               EncodeDone done) override {
    auto call = std::make_shared<RoutedEncode>(replicas_, picture, request, std::move(done));
    call->Begin();
    return call;
  }

 private:
  ReplicaSet& replicas_;
};

class RoutedDecodeClient final : public DecodeClient {
 public:
  explicit RoutedDecodeClient(ReplicaSet& replicas) : replicas_(replicas) {}
  std::shared_ptr<DecodeCall> Generate(const v1::DecodeStart& start,
                                       const rpc::RequestContext& request,
                                       const Placement& placement,
                                       std::shared_ptr<DecodeEvents> events) override {
    auto call =
        std::make_shared<RoutedGenerate>(replicas_, start, request, placement, std::move(events));
    call->Begin();
    return call;
  }
  DecodeWaits Waits(const std::string& affinity) override { return replicas_.Waits(affinity); }
  // Ahead-work is not tried twice.
  std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                const rpc::RequestContext& request, const std::string& affinity,
                                PrefillDone done) override {
    absl::StatusOr<ReplicaSet::Picked> picked = replicas_.Pick(affinity);
    if (!picked.ok()) {
      done(picked.status());
      return nullptr;
    }
    const std::shared_ptr<Replica> replica = std::move(picked->replica);
    std::shared_ptr<Call> call = replica->decode->Prefill(
        start, request, affinity, [replica, done = std::move(done)](auto result) { done(result); });
    replicas_.CancelWithReplica(replica->name, call);
    return call;
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
