#include "services/decode/engine/engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

// The engine bounds the requests itself, those without rows counted in: the scheduler never
// refuses one that was accepted.
EngineOptions ForLoop(EngineOptions options) {
  options.scheduler.max_waiting = std::numeric_limits<int32_t>::max();
  return options;
}

absl::Status Draining() {
  return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "DRAINING",
                                     "this replica is shutting down; ask another one"),
                         absl::Seconds(1));
}

}  // namespace

Engine::Engine(const EngineOptions& options, EngineDevice device, store::EmbeddingStore& store,
               base::Clock& clock)
    : most_requests_(int64_t{options.scheduler.max_sequences} + options.scheduler.max_waiting),
      clock_(clock),
      queue_(clock),
      loop_(ForLoop(options), std::move(device), clock,
            {.fetch = [this](FetchJob job) { fetcher_->Fetch(std::move(job)); },
             .ended = [this] { LeavePlace(); }}),
      fetcher_(std::make_unique<RowFetcher>(
          options.fetch, store, [this](FetchResult result) { queue_.Push(std::move(result)); })) {
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  queue_.Close();
  thread_.join();
  fetcher_.reset();
}

absl::StatusOr<Admission> Engine::Submit(Request request) {
  CHECK(!request.ids.empty());
  CHECK_GE(request.max_tokens, 1);
  const int64_t prompt_tokens = static_cast<int64_t>(request.ids.size());
  int64_t image_tokens = 0;
  for (const PromptPicture& picture : request.pictures) image_tokens += picture.rows;
  RETURN_IF_ERROR(loop_.CheckFits(prompt_tokens, image_tokens, 1));
  RETURN_IF_ERROR(loop_.health());
  RETURN_IF_ERROR(TakePlace());
  const int64_t max_tokens = std::min(request.max_tokens, limit_tokens() - prompt_tokens);
  if (request.arrival == absl::InfinitePast()) request.arrival = clock_.Now();

  Admission admission;
  admission.id = next_id_.fetch_add(1);
  admission.prompt_tokens = static_cast<int32_t>(prompt_tokens);
  admission.blocks = loop_.BlocksFor(prompt_tokens + max_tokens - 1);
  request.sink->OnAccepted(admission);
  if (!queue_.Push(NewRequest{std::make_unique<ActiveRequest>(admission.id, std::move(request),
                                                              static_cast<int32_t>(max_tokens))})) {
    LeavePlace();
    return Draining();
  }
  return admission;
}

void Engine::Cancel(SequenceId id, absl::Status status) {
  CHECK(!status.ok());
  queue_.Push(CancelRequest{id, std::move(status)});
}

void Engine::RowsReady(SequenceId id, std::vector<int32_t> pictures) {
  queue_.Push(RowsExist{id, std::move(pictures)});
}

bool Engine::Drain(absl::Time deadline) {
  {
    base::MutexLock lock(mutex_);
    draining_ = true;
  }
  if (AwaitNone(deadline)) return true;
  queue_.Push(CancelAll{Draining()});
  AwaitNone(absl::InfiniteFuture());
  return false;
}

absl::Status Engine::TakePlace() {
  base::MutexLock lock(mutex_);
  if (draining_) return Draining();
  if (requests_ >= most_requests_) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(requests_, " requests run or wait already; ask again later")),
        absl::Seconds(1));
  }
  ++requests_;
  return absl::OkStatus();
}

void Engine::LeavePlace() {
  base::MutexLock lock(mutex_);
  if (--requests_ == 0) none_left_.SignalAll();
}

bool Engine::AwaitNone(absl::Time until) {
  base::MutexLock lock(mutex_);
  while (requests_ > 0 && clock_.Now() < until) clock_.WaitUntil(none_left_, mutex_, until);
  return requests_ == 0;
}

// The engine's thread.
void Engine::Run() {
  std::vector<EngineMessage> messages;
  bool busy = false;
  while (queue_.Take(messages, busy ? absl::InfinitePast() : loop_.next_deadline())) {
    for (EngineMessage& message : messages) loop_.Handle(std::move(message));
    busy = loop_.Step();
  }
  loop_.EndAll(Draining());
}

}  // namespace tessera::decode
