#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/digest.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "services/vision/vision_service_deps.h"

namespace tessera::vision {

// One Encode call: offer, then either Ready, or NeedBytes, the bytes, Plan, Ready; then the record
// is held until the caller closes its side. One step at a time: each ends by starting exactly one
// read, write, lookup or encode, or by finishing; only OnCancel comes from the side. Deletes itself
// when done.
class EncodeReactor final : public grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse> {
 public:
  // `deps` and `fingerprint` outlive the call.
  EncodeReactor(const VisionServiceDeps& deps, const std::string& fingerprint,
                grpc::CallbackServerContext& context);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  enum class Step { kOffer, kNeedBytes, kChunks, kPlan, kEncode, kReady };

  absl::Status TakeOffer();
  void Lookup(absl::Time asked);
  store::FoundRecord Find();
  absl::Status AskForBytes();
  absl::Status TakeChunk();
  absl::Status TakePicture();
  absl::Status Submit();
  absl::Status SendReady(const store::RecordPtr& record, v1::CacheTier tier);
  void Read();
  void OnReadEnd();
  void Fail(const absl::Status& status);
  // `stage` has been under way since `begin`, and ends now.
  void Mark(Stage stage, absl::Time begin);
  // The end of the work: what follows is the caller's reading. Counted and told once. `tier`: where
  // the rows came from; none came where `status` is an error.
  void Count(const absl::Status& status, v1::CacheTier tier = v1::CACHE_TIER_UNSPECIFIED,
             int64_t rows = 0);
  void Tell(const absl::Status& status, v1::CacheTier tier, int64_t rows) const;
  v1::ImageRef Ref() const;

  const rpc::CallTracker::Token token_;
  const VisionServiceDeps& deps_;
  const std::string& fingerprint_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const WaiterId waiter_;
  const absl::Time arrival_;
  const rpc::RequestContext context_;
  std::atomic<bool> cancelled_{false};

  Step step_ = Step::kOffer;
  bool counted_ = false;
  v1::EncodeRequest request_;
  v1::EncodeResponse response_;
  base::Sha256Digest offered_digest_{};
  size_t offered_bytes_ = 0;
  std::string tenant_;
  std::unique_ptr<PendingPictures::Room>
      room_;  // of the offered bytes, until the pipeline has them
  base::Sha256 sha_;
  std::string bytes_;
  store::EmbeddingKey key_;
  ImageHeader header_;
  ImagePlan plan_;
  StageTimes stages_;
  std::vector<StageSpan> spans_;  // of the same
  std::optional<HeldRecords::Hold> hold_;
};

}  // namespace tessera::vision
