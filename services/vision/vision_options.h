#pragma once

#include <cstddef>
#include <string>

#include "common/tensor/dtype.h"
#include "services/vision/image/image.h"
#include "services/vision/image/quality.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::vision {

// How a vision service is set up. Validated by VisionRuntime::Create.
struct VisionOptions {
  std::string model_dir;                 // a Hugging Face directory
  std::string device = "cpu";            // as kernels::CreateBackend takes it
  DType embedding_dtype = DType::kF16;   // of stored rows: kF16, kF32, kI8
  bool quality_gate = true;              // off: scores are kept, nothing is judged
  QualityThresholds quality_thresholds;  // of warn and refuse
  ImageLimits image_limits;              // checked from the header
  int prepare_threads = 2;               // decode, quality, preprocess; 1..64
  int lookup_threads = 4;                // reads of the store, which may be slow; 1..64
  size_t max_pending_images = 64;        // accepted, not yet encoded; more is refused
  size_t max_pending_bytes = 256ull
                             << 20;  // of encoded pictures, here or on their way; more is refused
  double tenant_share = 0.5;         // of both, that a tenant with a name may have
  size_t max_held_bytes = 256ull << 20;  // of rows whose reader has not read them; more is refused
  // This replica's address, by which decode reads records that no store has. Empty: nobody does.
  std::string origin;
  int max_batch_images = 4;            // in one pass of the tower; 1..256
  rpc::SpanExporter* spans = nullptr;  // of sampled requests; outlives the service. Null: none
};

}  // namespace tessera::vision
