#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/worker_pool.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/store/embedding_store.h"
#include "common/store/record_codec.h"
#include "common/store/tiered_store.h"
#include "services/vision/arriving_picture.h"
#include "services/vision/encoder/encode_pipeline.h"
#include "services/vision/encoder/held_records.h"
#include "services/vision/encoder/identity.h"
#include "services/vision/encoder/quality_gate.h"
#include "services/vision/encoder/refused_pictures.h"
#include "services/vision/image/picture.h"
#include "services/vision/vision_metrics.h"
#include "tessera/v1/vision.pb.h"

namespace tessera::vision {

// What the service and its calls stand on. References outlive it.
struct VisionServiceDeps {
  EncodePipeline& pipeline;
  base::WorkerPool& lookups;  // where the stores are read
  base::WorkerPool& records;  // where GetRecord reads: no slow store holds it up
  store::EmbeddingStore& store;
  store::EmbeddingStore& local;  // what of it is in this process's memory, for GetRecord
  HeldRecords& held;             // by calls whose caller has not closed its side
  RefusedPictures& refused;
  base::Clock& clock;
  const VisionMetrics& metrics;
  RowIdentity identity;
  QualityGate gate;
  ImageLimits limits;
  RowPlanner plan;
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
inline absl::Status CallerGone() { return absl::CancelledError("the caller is gone"); }

}  // namespace tessera::vision
