#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/compute_pool.h"
#include "common/store/embedding_store.h"
#include "common/store/record_codec.h"
#include "common/store/set/store_set.h"
#include "common/weights/canary_file.h"
#include "kernels/backend.h"
#include "services/vision/vision_metrics.h"
#include "services/vision/vision_options.h"

namespace tessera::vision {

// What a vision service makes. Constant for its life.
struct VisionInfo {
  std::string fingerprint;     // hex; refs hold for one fingerprint
  int64_t rows_per_image = 0;  // rows of any picture (0: depends on the picture)
  int64_t width = 0;           // columns of a row
  std::string device;          // the backend's name
  kernels::MemoryUse memory;   // right after loading
  size_t loaded_bytes = 0;     // bytes of tower and connector in the model's files
};

// Where records go and come from; the stores outlive who uses them.
struct VisionStores {
  // One store, in this process's memory.
  VisionStores(store::EmbeddingStore& only)  // NOLINT(google-explicit-constructor)
      : store(only), local(only) {}
  // `local`: what of `store` is in memory here. `codec` seals what others read here.
  VisionStores(store::EmbeddingStore& all, store::EmbeddingStore& local, store::RecordCodec codec)
      : store(all), local(local), codec(std::move(codec)) {}
  explicit VisionStores(store::StoreSet& set)
      : store(set.all()), local(set.local()), codec(set.codec()), tiered(set.shared()) {}

  store::EmbeddingStore& store;
  store::EmbeddingStore& local;
  store::RecordCodec codec;
  store::TieredStore* tiered = nullptr;  // `store`, where it has more than memory
};

// The vision service of one model on one device: owns backend, tower, threads and service.
class VisionRuntime {
 public:
  // Loads the model. `pool`, the stores, `clock` and `metrics` outlive the result. INVALID_ARGUMENT
  // or NOT_FOUND names the option, config key or tensor at fault.
  static absl::StatusOr<std::unique_ptr<VisionRuntime>> Create(const VisionOptions& options,
                                                               base::ComputePool& pool,
                                                               const VisionStores& stores,
                                                               base::Clock& clock,
                                                               metrics::Metrics& metrics);
  // REQUIRES: the server that serves service() has been shut down.
  ~VisionRuntime();

  // tessera.v1.VisionService; lives as long as this object.
  grpc::Service* service();
  const VisionInfo& info() const;
  // Whether the model's rows are those of its canary file. Constant.
  const weights::CanaryResult& canary() const;
  // What waits and what was done. Any thread.
  PipelineStats stats() const;
  VisionAnswers answers() const;
  // Not OK, with the reason, once the device has failed for some time; OK again where it works.
  absl::Status health() const { return stats().health; }
  // Brings gauges up to date. One thread at a time.
  void UpdateMetrics();

  // New pictures are refused with UNAVAILABLE from now on; waits for the accepted ones, and for
  // those who read rows here, until `deadline` (of the clock). True when none is left. May be
  // called again.
  bool Drain(absl::Time deadline);

 private:
  struct Stack;
  explicit VisionRuntime(std::unique_ptr<Stack> stack);
  const std::unique_ptr<Stack> stack_;
};

}  // namespace tessera::vision
