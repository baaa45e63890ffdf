#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "common/base/worker_pool.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/store/embedding_store.h"
#include "common/store/record_codec.h"
#include "common/store/tiered_store.h"
#include "services/vision/encoder/encode_pipeline.h"
#include "services/vision/encoder/held_records.h"
#include "services/vision/encoder/identity.h"
#include "services/vision/encoder/quality_gate.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"
#include "services/vision/vision_metrics.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::vision {

// What the service stands on. References outlive it.
struct VisionServiceParts {
  EncodePipeline& pipeline;
  base::WorkerPool& lookups;  // where the stores are read
  base::WorkerPool& records;  // where GetRecord reads: no slow store holds it up
  store::EmbeddingStore& store;
  store::EmbeddingStore& local;  // what of it is in this process's memory, for GetRecord
  HeldRecords& held;             // by calls whose caller has not closed its side
  base::Clock& clock;
  const VisionMetrics& metrics;
  RowIdentity identity;
  QualityGate gate;
  ImageLimits limits;
  // Rows from a header that passed the limits.
  std::function<absl::StatusOr<ImagePlan>(const ImageHeader&)> plan;
  v1::VisionServiceGetInfoResponse info;
  store::RecordCodec codec = {};       // of GetRecord
  std::string origin = {};             // this replica's name in references
  uint32_t pending_limit = 0;          // pictures that may be pending
  rpc::SpanExporter* spans = nullptr;  // null: spans go nowhere
  // `store`, where it has more than memory: tells who had a record.
  store::TieredStore* tiered = nullptr;
  bool fit = true;  // the model passes its canary, or has none
  // Of Encode and GetRecord.
  std::shared_ptr<rpc::CallTracker> calls = std::make_shared<rpc::CallTracker>();
};

// CANCELLED: how a call ends that its caller has left.
absl::Status CallerGone();

// tessera.v1.VisionService: protocol buffers to the pipeline and back. No call blocks a thread of
// gRPC. Errors carry the reasons of services/vision/image and of the pipeline, and:
//   OFFER_INVALID      the first message is no offer, or its digest has not 32 bytes
//   SIZE_MISMATCH      more or fewer bytes than offered
//   DIGEST_MISMATCH    other bytes than offered
//   IMAGE_QUALITY      the gate refuses the picture, known or new
class VisionService final : public v1::VisionService::CallbackService {
 public:
  explicit VisionService(VisionServiceParts parts) : parts_(std::move(parts)) {}

  grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* Encode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::GetRecordResponse>* GetRecord(
      grpc::CallbackServerContext* context, const v1::GetRecordRequest* request) override;
  grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext* context,
      const v1::VisionServiceWatchLoadRequest* request) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::VisionServiceGetInfoRequest* request,
                                    v1::VisionServiceGetInfoResponse* response) override;

  // False where calls are left at `deadline`: rows that are made and not yet read. Those who watch
  // the load are none of them.
  bool AwaitCalls(absl::Time deadline) { return parts_.calls->AwaitNone(parts_.clock, deadline); }

 private:
  const VisionServiceParts parts_;
  const std::string fingerprint_ = FingerprintOf(parts_.identity, parts_.gate);
  std::atomic<int> records_under_way_{0};
  base::Timers timers_{parts_.clock};  // of WatchLoad
};

}  // namespace tessera::vision
