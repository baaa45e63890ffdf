#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/compute_pool.h"
#include "common/base/json.h"
#include "common/metrics/metrics.h"
#include "common/weights/canary_file.h"
#include "kernels/backend.h"
#include "services/decode/decode_options.h"
#include "services/decode/engine/engine_stats.h"
#include "services/decode/engine/record_reader.h"

namespace tessera::decode {

// What a decode service serves. Constant for its life.
struct DecodeInfo {
  std::string family;            // model_type of the config, such as "llava"
  int64_t context_tokens = 0;    // tokens of prompt and answer together
  int64_t kv_cache_tokens = 0;   // "KV cache: N tokens,
  double kv_cache_requests = 0;  // M requests of 4096": kv_cache_tokens / 4096
  int64_t kv_cache_blocks = 0;
  int64_t width = 0;          // columns of a picture's row
  std::string device;         // the backend's name
  std::string digest;         // Weights::Sketch, hex
  kernels::MemoryUse memory;  // right after loading
};

// The decode service of one model on one device: owns tokenizer, template, backend, engine thread
// and service.
class DecodeRuntime {
 public:
  // Loads the model and starts the engine. `pool`, `clock` and `metrics` outlive the result.
  // INVALID_ARGUMENT or NOT_FOUND names the option, config key or tensor at fault.
  static absl::StatusOr<std::unique_ptr<DecodeRuntime>> Create(const DecodeOptions& options,
                                                               base::ComputePool& pool,
                                                               RecordReader reader,
                                                               base::Clock& clock,
                                                               metrics::Metrics& metrics);
  // Ends what still runs with UNAVAILABLE. REQUIRES: the server that serves service() has been shut
  // down.
  ~DecodeRuntime();

  // tessera.v1.DecodeService; lives as long as this object.
  grpc::Service* service();
  const DecodeInfo& info() const;
  // Whether the model answers as its canary file says. Constant.
  const weights::CanaryResult& canary() const;

  // What the engine has done. Any thread.
  EngineStats stats() const;
  base::Json State() const;  // for /debug/state: counts
  // Whether the engine gets on. Any thread.
  EngineProgress progress() const;
  // Not OK once the device has failed. Any thread.
  absl::Status health() const;
  // Brings the totals and gauges up to date. One thread at a time.
  void UpdateMetrics();

  // New answers are refused with UNAVAILABLE from now on; waits for the accepted ones until
  // `deadline` (of the clock), then cancels the rest. True when none was cancelled. May be called
  // again. Any thread but the engine's.
  bool Drain(absl::Time deadline);

 private:
  struct Contents;
  explicit DecodeRuntime(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace tessera::decode
