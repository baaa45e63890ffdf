#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "common/store/tiered_store.h"
#include "services/vision/arriving_picture.h"
#include "services/vision/encode_request.h"
#include "services/vision/encoder/held_records.h"
#include "services/vision/encoder/pending_pictures.h"
#include "services/vision/encoder/stage_times.h"
#include "services/vision/vision_service_deps.h"

namespace tessera::vision {

// One Encode call: an offer, a lookup, then Ready; or the picture's bytes, during which NeedBytes
// and Plan are said, the encode, then Ready. Then the record is held until the caller closes its
// side. One step at a time: each ends by starting exactly one read, lookup or encode, or by
// failing. What is said goes out beside that; only it and OnCancel come from other threads. Deletes
// itself when done.
class EncodeReactor final : public grpc::ServerBidiReactor<EncodeRequest, v1::EncodeResponse> {
 public:
  // `deps` and `fingerprint` outlive the call.
  EncodeReactor(const VisionServiceDeps& deps, const std::string& fingerprint,
                grpc::CallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  enum class Awaited { kOffer, kBytes, kEnd };  // of what is read next

  absl::Status TakeOffer();
  absl::Status KeepOffer();
  void Lookup(absl::Time asked);
  store::FoundRecord Find();
  absl::Status BeginPicture();
  absl::Status TakeChunk();
  absl::Status PassOver();
  absl::Status TakeBytes();
  absl::Status GoOn();
  absl::Status Submit();
  absl::Status SendReady(const store::RecordPtr& record, v1::CacheTier tier);
  void Read();
  void OnReadEnd();
  bool unheard() const;
  // Behind what is being written.
  void Send(v1::EncodeResponse response);
  void SendNeedBytes();
  void SendPlan(const ImagePlan& plan);
  void Fail(const absl::Status& status);
  // Ends the call behind what is being written. The last thing that its caller does here.
  void End(const grpc::Status& status);
  // `stage` has been under way since `begin`, and ends now.
  void Mark(Stage stage, absl::Time begin);
  // The end of the work: what follows is the caller's reading. Counted and told once. `tier`: where
  // the rows came from; none came where `status` is an error.
  void Count(const absl::Status& status, v1::CacheTier tier = v1::CACHE_TIER_UNSPECIFIED,
             int64_t rows = 0);
  void Tell(const absl::Status& status, v1::CacheTier tier, int64_t rows) const;
  // Without rows.
  v1::ImageRef Ref() const;

  const rpc::CallTracker::Token token_;
  const VisionServiceDeps& deps_;
  const std::string& fingerprint_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const WaiterId waiter_;
  const absl::Time arrival_;
  const rpc::RequestContext context_;
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);

  Awaited awaited_ = Awaited::kOffer;
  bool counted_ = false;
  EncodeRequest request_;
  OfferedPicture offered_;
  std::string tenant_;
  // Of the offered bytes, until the pipeline has them; an error: why the first chunk was not kept.
  absl::StatusOr<std::unique_ptr<PendingPictures::Room>> room_ = nullptr;
  std::optional<ArrivingPicture> picture_;
  bool planned_ = false;          // and said
  bool held_asked_ = false;       // for the held bytes
  size_t superfluous_bytes_ = 0;  // that may come of a picture whose record exists
  store::EmbeddingKey key_;
  StageTimes stages_;
  std::vector<StageSpan> spans_;             // of the stages
  std::unique_ptr<HeldRecords::Hold> hold_;  // from the offer on

  mutable base::Mutex mutex_;
  std::deque<v1::EncodeResponse> outbox_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool unheard_ ABSL_GUARDED_BY(mutex_) = false;                   // a write failed
  std::optional<grpc::Status> end_ ABSL_GUARDED_BY(mutex_);        // once all is written
};

}  // namespace tessera::vision
