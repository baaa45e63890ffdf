#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/answer/answer.h"
#include "services/gateway/api/ended_call.h"
#include "services/gateway/api/full_sink.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::gateway {

// One answer as a stream: one write in flight, pieces that come meanwhile are joined. A client that
// leaves sink_bytes of them unread stops the answer until it reads on; after slow_client_timeout of
// that the answer ends with RESOURCE_EXHAUSTED, SLOW_CLIENT. Gives its place back with its last
// word or, where its client was slow, once that is read or the call is cut. Owns itself until
// OnDone.
class StreamReactor final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse>,
                            public AnswerSink,
                            public std::enable_shared_from_this<StreamReactor> {
 public:
  // The reactor of a new call; `answer` makes it, once, for the sink it is given.
  static StreamReactor* Start(const ReactorDeps& deps, const AnswerDeps& answer_deps,
                              AdmittedCall call, grpc::CallbackServerContext& context,
                              v1::GenerateRequest message);

  bool OnPiece(v1::TextPiece piece) override;
  void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  enum class Step { kNothing, kWrite, kWriteAndFinish, kFinish };

  StreamReactor(const ReactorDeps& deps, AdmittedCall& call, grpc::CallbackServerContext& context)
      : deps_(deps),
        hold_(std::move(call.held)),
        ended_call_(context, deps),
        full_sink_(deps.timers),
        place_(std::move(call.place)) {}

  // What comes next, message_ filled for it. Whoever is told to finish is told so once.
  Step TakeStep(grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lock is given back before gRPC is called: once it knows of the end of a cancelled call, it
  // may let this object go from another thread at any moment.
  void Do(Step step, const grpc::Status& status);
  void GiveUp();

  const ReactorDeps deps_;
  const ByteBudget::Hold hold_;          // of the request, which gRPC keeps as long
  EndedCall ended_call_;                 // its end by OnEnd
  std::shared_ptr<StreamReactor> self_;  // until OnDone
  v1::GenerateStreamResponse message_;   // of whoever TakeStep told to write

  base::Mutex mutex_;
  std::shared_ptr<Answer> answer_ ABSL_GUARDED_BY(mutex_);  // until its end
  v1::TextPiece unsent_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  v1::GenerateResponse end_response_ ABSL_GUARDED_BY(mutex_);
  FullSink full_sink_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  Admission::Place place_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::gateway
