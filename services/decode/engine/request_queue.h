#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/decode/engine/active_request.h"
#include "services/decode/engine/row_fetcher.h"

namespace tessera::decode {

// What other threads tell the engine's thread.
struct NewRequest {
  std::unique_ptr<ActiveRequest> request;
};
struct CancelRequest {
  SequenceId id = 0;
  absl::Status status;  // what the sink is told
};
// The reader of a paused request has caught up.
struct ResumeRequest {
  SequenceId id = 0;
};
// Ends all ahead-work.
struct CancelAhead {
  absl::Status status;
};
// Ends all requests, also those that come later.
struct CancelAll {
  absl::Status status;
};
struct RowsExist {
  SequenceId id = 0;
  std::vector<int32_t> pictures;
};
using EngineMessage = std::variant<NewRequest, CancelRequest, ResumeRequest, CancelAhead, CancelAll,
                                   RowsExist, FetchResult>;

// The way into the engine. Any thread pushes, the engine's thread takes all at once. Bounded by its
// users: the engine admits a bounded number of requests, and each has at most a few messages under
// way. Allocates nothing once warm.
class RequestQueue {
 public:
  explicit RequestQueue(base::Clock& clock) : clock_(clock) {}

  // False, dropping `message`, once the queue is closed. Never waits.
  bool Push(EngineMessage message);
  // Swaps what has come into `out` (emptied first); waits for a message, but not beyond `until`
  // (InfinitePast: not at all). False once the queue is closed and empty.
  bool Take(std::vector<EngineMessage>& out, absl::Time until);
  void Close();

 private:
  base::Clock& clock_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<EngineMessage> messages_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tessera::decode
