#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "common/rpc/call_tracker.h"
#include "services/gateway/answer/answer.h"
#include "services/gateway/api/api_options.h"
#include "services/gateway/api/full_sink.h"
#include "services/gateway/http/chat_request.h"
#include "services/gateway/http/chat_response.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/image_fetcher.h"

namespace tessera::gateway::http {

// What chat calls use; all outlives them.
struct ChatDeps {
  const ApiOptions& options;
  AnswerDeps answer;
  base::Timers& timers;
  rpc::CallTracker& tracker;
  ChatLimits limits;
  ImageFetcher* fetcher = nullptr;  // null where limits.image_urls is false
};

// One chat completion: from its body, as an Answer, to what goes onto its connection. The text of a
// stream waits here while the connection writes; more than sink_bytes of it stops the answer until
// the connection takes it, and at Answer::SinkDeadline it is given up. Any thread. Lives on by
// itself until its answer has ended, and holds its place among the requests under way until its
// last word is taken or, where its client was slow or gone, until it dies.
class ChatCall final : public AnswerSink,
                       public RunningRequest,
                       public std::enable_shared_from_this<ChatCall> {
 public:
  ~ChatCall() override;
  // RESOURCE_EXHAUSTED or UNAVAILABLE where there is no place. `wake` is called on any thread, in
  // short: there is something to take, or GetState has changed.
  static absl::StatusOr<std::shared_ptr<ChatCall>> Enter(const ChatDeps& deps,
                                                         rpc::RequestContext request,
                                                         absl::Time arrival, std::string tenant,
                                                         std::function<void()> wake);

  // Once. Parses and hashes: milliseconds for each MiB of `body`. `held`: what that has of the
  // budget of bodies; its pictures have it until the first piece, or the end.
  void Start(std::string body, ByteBudget::Hold held);

  struct Output {
    std::optional<Response> whole;  // the whole answer; nothing else follows
    bool begins = false;            // of a stream: its head comes before `bytes`
    std::string bytes;              // of a stream; may be empty
    bool ends = false;              // of a stream: nothing follows
  };
  // What is there to send now. To be called by one thread, when what it gave last has been written.
  Output Take();

  // kAbandoned: the client did not read in time; nothing that is sent will reach it.
  enum class State { kRunning, kEnded, kAbandoned };
  State GetState();
  // The client has gone.
  void Gone();
  bool stream();
  // Where there is an answer already, that is what ends.
  void Abort(const absl::Status& status) override;

  bool OnPiece(v1::TextPiece piece) override;
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override;

 private:
  ChatCall(const ChatDeps& deps, AdmittedCall call, std::function<void()> wake);
  // The picture of request_.remote[index] and those behind it, then the answer.
  void Fetch(size_t index, size_t bytes);
  void OnFetched(size_t index, size_t bytes, absl::StatusOr<std::string> picture);
  void StartAnswer();
  // An end without an answer, unless there was one.
  void Refuse(const absl::Status& status);
  void GiveUp();
  void TakeEnd(Output& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const rpc::CallTracker::Token token_;  // first: goes last
  const ChatDeps deps_;
  const rpc::RequestContext context_;
  const absl::Time arrival_;
  const std::string tenant_;
  const std::function<void()> wake_;
  ChatRequest request_;  // by Start and what follows it, before there is an answer

  base::Mutex mutex_;
  std::shared_ptr<ChatCall> self_ ABSL_GUARDED_BY(mutex_);  // while there is an answer
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);  // until its end
  std::optional<ChatResponse> format_ ABSL_GUARDED_BY(mutex_);
  bool stream_ ABSL_GUARDED_BY(mutex_) = false;
  v1::TextPiece waiting_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse end_response_ ABSL_GUARDED_BY(mutex_);
  FullSink full_ ABSL_GUARDED_BY(mutex_);
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // something of a stream was taken
  bool awake_ ABSL_GUARDED_BY(mutex_) = false;  // wake_ was called since Take
  Admission::Place place_ ABSL_GUARDED_BY(mutex_);
  ByteBudget::Hold held_ ABSL_GUARDED_BY(mutex_);  // until the first piece
};

}  // namespace tessera::gateway::http
