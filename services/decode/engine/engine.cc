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

Engine::Engine(const EngineOptions& options, EngineDevice device, RecordReader reader,
               base::Clock& clock)
    : options_(options),
      most_requests_(int64_t{options.scheduler.max_sequences} + options.scheduler.max_waiting),
      clock_(clock),
      queue_(clock),
      loop_(ForLoop(options), std::move(device), clock,
            {.fetch = [this](FetchJob job) { fetcher_->Fetch(std::move(job)); },
             .ended = [this](Priority priority) { LeavePlace(priority); }}),
      fetcher_(std::make_unique<RowFetcher>(
          options.fetch, std::move(reader), clock,
          [this](FetchResult result) { queue_.Push(std::move(result)); })) {
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  queue_.Close();
  thread_.join();
  fetcher_.reset();
}

absl::StatusOr<AcceptedRequest> Engine::Submit(Request request) {
  const bool ahead = request.priority == Priority::kAhead;
  CHECK(!request.ids.empty());
  CHECK_GE(request.max_tokens, ahead ? 0 : 1);
  RETURN_IF_ERROR(CheckRequest(request));
  RETURN_IF_ERROR(loop_.health());
  RETURN_IF_ERROR(TakePlace(request.priority));
  const Priority priority = request.priority;
  const int64_t prompt_tokens = static_cast<int64_t>(request.ids.size());
  const int64_t max_tokens =
      ahead ? 0 : std::min(request.max_tokens, limit_tokens() - prompt_tokens);
  if (request.arrival == absl::InfinitePast()) request.arrival = clock_.Now();
  NameBlocks(request);

  AcceptedRequest accepted;
  accepted.id = next_id_.fetch_add(1);
  accepted.prompt_tokens = static_cast<int32_t>(prompt_tokens);
  accepted.blocks = loop_.BlocksFor(prompt_tokens + std::max<int64_t>(max_tokens - 1, 0));
  request.sink->OnAccepted(accepted);
  if (!queue_.Push(NewRequest{std::make_unique<ActiveRequest>(accepted.id, std::move(request),
                                                              static_cast<int32_t>(max_tokens))})) {
    LeavePlace(priority);
    return Draining();
  }
  return accepted;
}

absl::Status Engine::CheckRequest(const Request& request) const {
  int64_t image_tokens = 0;
  for (const PromptPicture& picture : request.pictures) image_tokens += picture.rows;
  RETURN_IF_ERROR(loop_.CheckFits(static_cast<int64_t>(request.ids.size()), image_tokens,
                                  request.priority == Priority::kAhead ? 0 : 1));
  for (const int32_t id : request.ids) {
    if (id < options_.vocabulary) continue;
    return base::BadField(
        "messages", "TOKEN_UNKNOWN",
        absl::StrCat("the prompt has token ", id, "; the model knows tokens 0 to ",
                     options_.vocabulary - 1, ": its tokenizer belongs to another one"));
  }
  return CheckVocabulary(request.sampling, options_.vocabulary);
}

// On the caller's thread: the engine's has better to do.
void Engine::NameBlocks(Request& request) const {
  BlockHasher hasher(options_.block_size);
  const int32_t tokens = static_cast<int32_t>(request.ids.size());
  ChainRoot root;
  root.tenant = request.tenant;
  root.rotary_length = tokens > options_.rotary_shared_tokens ? tokens : 0;
  request.root = hasher.Root(root);
  request.chain = hasher.Chain(request.root, request.ids, request.pictures);
}

void Engine::Cancel(SequenceId id, absl::Status status) {
  CHECK(!status.ok());
  queue_.Push(CancelRequest{id, std::move(status)});
}

void Engine::Resume(SequenceId id) { queue_.Push(ResumeRequest{id}); }

void Engine::RowsReady(SequenceId id, std::vector<int32_t> pictures) {
  queue_.Push(RowsExist{id, std::move(pictures)});
}

bool Engine::draining() const {
  base::MutexLock lock(mutex_);
  return draining_;
}

bool Engine::Drain(absl::Time deadline) {
  {
    base::MutexLock lock(mutex_);
    draining_ = true;
  }
  queue_.Push(CancelAhead{Draining()});
  if (AwaitNone(deadline)) return true;
  queue_.Push(CancelAll{Draining()});
  AwaitNone(absl::InfiniteFuture());
  return false;
}

EngineProgress Engine::progress() const {
  const EngineStats stats = loop_.stats();
  base::MutexLock lock(mutex_);
  return {requests_ > stats.outside, stats.steps};
}

bool Engine::full() const {
  base::MutexLock lock(mutex_);
  return requests_ >= most_requests_;
}

absl::Status Engine::TakePlace(Priority priority) {
  base::MutexLock lock(mutex_);
  if (draining_) return Draining();
  const bool ahead = priority == Priority::kAhead;
  const int64_t here = ahead ? ahead_requests_ : requests_;
  if (here >= (ahead ? options_.max_ahead : most_requests_)) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat(here, " requests run or wait already; ask again later")),
        absl::Seconds(1));
  }
  ++(ahead ? ahead_requests_ : requests_);
  return absl::OkStatus();
}

void Engine::LeavePlace(Priority priority) {
  base::MutexLock lock(mutex_);
  --(priority == Priority::kAhead ? ahead_requests_ : requests_);
  if (requests_ + ahead_requests_ == 0) none_left_.SignalAll();
}

bool Engine::AwaitNone(absl::Time until) {
  base::MutexLock lock(mutex_);
  while (requests_ + ahead_requests_ > 0 && clock_.Now() < until)
    clock_.WaitUntil(none_left_, mutex_, until);
  return requests_ + ahead_requests_ == 0;
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
