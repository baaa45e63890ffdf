#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "services/decode/engine/engine_loop.h"
#include "services/decode/engine/engine_options.h"
#include "services/decode/engine/request.h"
#include "services/decode/engine/request_queue.h"
#include "services/decode/engine/row_fetcher.h"

namespace tessera::decode {

// The decoder at work: one thread that owns every sequence, block and the device, reached through a
// queue; answers leave through TokenSinks. Any thread.
class Engine {
 public:
  // Starts the thread. `clock` outlives the engine. REQUIRES: valid options.
  Engine(const EngineOptions& options, EngineDevice device, RecordReader reader,
         base::Clock& clock);
  // Ends what still runs with UNAVAILABLE.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Accepts a request: calls its sink's OnAccepted, then lets the engine have it. Refused at once,
  // and the sink never called again: INVALID_ARGUMENT, CONTEXT_TOO_LONG, when it can never fit, or
  // for a token of prompt or bias beyond the vocabulary; RESOURCE_EXHAUSTED, QUEUE_FULL, when too
  // many wait (or too much ahead-work); UNAVAILABLE, DRAINING. Never waits. Ahead-work ends with OK
  // and kLength, or kDropped when it gave way.
  absl::StatusOr<AcceptedRequest> Submit(Request request);
  // The request ends with `status` (not OK) at the next step; nothing when it has ended.
  void Cancel(SequenceId id, absl::Status status);
  // The reader of a request whose sink answered kPause has caught up.
  void Resume(SequenceId id);
  // Rows that OnNeedRows asked for exist; other pictures are ignored.
  void RowsReady(SequenceId id, std::vector<int32_t> pictures);

  // Submit refuses from now on; waits for the accepted until `deadline`, then cancels the rest and
  // waits for them. True when none was cancelled. Not from a sink.
  bool Drain(absl::Time deadline);

  // Whether Submit refuses for good.
  bool draining() const;
  // Whether Submit would refuse a question now for those that run and wait.
  bool full() const;
  EngineStats stats() const { return loop_.stats(); }
  // Sees questions that a stuck engine has not seen yet.
  EngineProgress progress() const;
  // Not OK once the device has failed.
  absl::Status health() const { return loop_.health(); }
  // Most tokens that prompt and answer together may have.
  int64_t limit_tokens() const { return loop_.limit_tokens(); }
  int32_t block_size() const { return options_.block_size; }  // tokens

 private:
  absl::Status CheckRequest(const Request& request) const;
  void NameBlocks(Request& request) const;
  absl::Status TakePlace(Priority priority);
  void LeavePlace(Priority priority);
  bool AwaitNone(absl::Time until);
  void Run();

  const EngineOptions options_;
  const int64_t most_requests_;  // in the batch, waiting, or waiting for rows
  base::Clock& clock_;
  RequestQueue queue_;
  EngineLoop loop_;
  std::unique_ptr<RowFetcher> fetcher_;
  std::atomic<SequenceId> next_id_{1};

  mutable base::Mutex mutex_;
  base::CondVar none_left_;
  int64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t ahead_requests_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace tessera::decode
