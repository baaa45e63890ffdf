#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/decode/cache/block_pool.h"
#include "services/decode/cache/prefix_cache.h"
#include "services/decode/engine/device_step.h"
#include "services/decode/engine/engine_options.h"
#include "services/decode/engine/engine_stats.h"
#include "services/decode/engine/request_queue.h"
#include "services/decode/schedule/scheduler.h"

namespace tessera::decode {

// What the engine's thread does, one call after the other: no thread of its own, so a test drives
// it by hand. Owns sequences, blocks and device. A warm decode step allocates
// nothing.
class EngineLoop {
 public:
  struct Hooks {
    std::function<void(FetchJob)> fetch;  // the result comes back as a message
    std::function<void(Priority)> ended;  // after a sink's OnEnd
  };

  EngineLoop(const EngineOptions& options, EngineDevice device, base::Clock& clock, Hooks hooks);
  // REQUIRES: no request is left (EndAll).
  ~EngineLoop();

  void Handle(EngineMessage message);
  // Ends what is past its deadline, then computes one step and hands its tokens out. False when
  // there was nothing to compute.
  bool Step();
  // When Step must be called at the latest although no message came.
  absl::Time next_deadline() const { return next_deadline_; }
  void EndAll(const absl::Status& status);

  // Constants; any thread.
  int64_t limit_tokens() const { return scheduler_.limit_tokens(); }
  absl::Status CheckFits(int64_t prompt_tokens, int64_t image_tokens, int64_t max_tokens) const {
    return scheduler_.CheckFits(prompt_tokens, image_tokens, max_tokens);
  }
  int32_t BlocksFor(int64_t tokens) const { return pool_.BlocksFor(tokens); }

  // Any thread.
  EngineStats stats() const;
  // Not OK once the device has failed: nothing can be computed any more. Any thread.
  absl::Status health() const { return device_.health(); }

 private:
  void On(NewRequest message);
  void On(CancelRequest message);
  void On(ResumeRequest message);
  void On(CancelAhead message);
  void On(CancelAll message);
  void On(RowsExist message);
  void On(FetchResult message);

  void Proceed(ActiveRequest& request);
  void ProceedExpelled();
  void Fetch(ActiveRequest& request);
  void AskForRows(ActiveRequest& request);
  void EndExpired(absl::Time now);
  void UpdateNextDeadline();

  void MarkStarted(absl::Time now);
  StepReport GatherRuns();
  void Deliver(const Progress& progress, size_t s, absl::Time now);
  void Pause(ActiveRequest& request, absl::Time now);
  void FailPlanned(const absl::Status& status);
  void End(ActiveRequest& request, const absl::Status& status);
  void CountEnd(const ActiveRequest& request, const absl::Status& status);
  void Publish();

  const EngineOptions options_;
  DeviceStep device_;
  base::Clock& clock_;
  const Hooks hooks_;
  BlockPool pool_;
  PrefixCache cache_;
  Scheduler scheduler_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<ActiveRequest>> requests_;
  absl::Time next_deadline_ = absl::InfiniteFuture();
  absl::Status closed_;  // not OK: what new requests end with

  // Of one step; kept for their memory.
  std::vector<int32_t> sampled_ids_;
  std::vector<TokenRun> runs_;      // [sequences of the plan]
  std::vector<int32_t> sample_of_;  // [sequences of the plan] its first in device_.sampled(), or -1
  std::vector<SequenceId> expelled_;

  EngineStats counts_;
  mutable base::Mutex mutex_;
  EngineStats published_counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
