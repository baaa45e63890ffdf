#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/admission/pace.h"
#include "services/gateway/answer/answer_life.h"
#include "services/gateway/answer/answer_options.h"
#include "services/gateway/answer/answer_pictures.h"
#include "services/gateway/answer/parse_request.h"
#include "services/gateway/answer/request_metrics.h"
#include "services/gateway/answer/running_requests.h"
#include "services/gateway/answer/work_estimate.h"
#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// Where an answer goes: pieces, then one end. One call at a time, on any thread.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  // False: taken, but the client does not keep up: no more comes until Answer::Resume, which is to
  // be called exactly once, on any thread, perhaps before this returns. A piece may have
  // log-probabilities and no text yet.
  virtual bool OnPiece(v1::TextPiece piece) = 0;
  // The last call. `response` has everything but the text and the log-probabilities; it is empty
  // unless `status` is OK.
  virtual void OnEnd(const absl::Status& status, const v1::GenerateResponse& response) = 0;
};

// What answers use; all of it outlives them.
struct AnswerDeps {
  const AnswerOptions& options;
  ImageResolver& resolver;
  DecodeClient& decode;
  base::Clock& clock;
  const RequestMetrics& metrics;
  Admission& admission;
  Pace& pace;
  RunningRequests& running;
  uint32_t context_tokens = 0;  // of the model; 0: not known
};

// One request on its way: its turn, pictures to refs, then decode, then pieces to the sink. Tells
// AnswerLife what happens, under its lock, and does what that says, without. Any thread; keeps
// itself alive until the sink has had its end.
class Answer final : public DecodeEvents,
                     public RunningRequest,
                     public std::enable_shared_from_this<Answer> {
 public:
  // `sink` lives until its OnEnd has returned. `arrival`: when the request came.
  Answer(const AnswerDeps& deps, rpc::RequestContext request, absl::Time arrival, AnswerSink& sink,
         RequestKind kind = RequestKind::kGenerate)
      : deps_(deps),
        request_(std::move(request)),
        arrival_(arrival),
        sink_(sink),
        ticket_(deps.admission.NewTicket()),
        timeline_(deps.metrics, kind, request_, arrival) {}
  ~Answer() override { deps_.running.Remove(*this); }

  // Called once.
  void Start(v1::GenerateRequest request, const std::string& tenant);
  // The end comes with CANCELLED, unless it came before; or, where the client has waited until its
  // deadline, with DEADLINE_EXCEEDED.
  void Cancel();
  void Abort(const absl::Status& status) override {
    Tell({.kind = AnswerEventKind::kAbort, .status = status});
  }
  // The sink takes pieces again, after it had said that it does not.
  void Resume() { Tell({.kind = AnswerEventKind::kResumed}); }
  // The sink has not done so in time (SinkDeadline): the end comes with RESOURCE_EXHAUSTED,
  // SLOW_CLIENT, or DEADLINE_EXCEEDED. While a sink is full nobody else sees the deadline pass.
  void GiveUpSlowClient();
  // How long a sink that is full from `now` on may stay so.
  absl::Time SinkDeadline(absl::Time now) const;

  void OnRouted(const Routed& routed) override {
    route_ = routed;
    Tell({.kind = AnswerEventKind::kRouted});
  }
  void OnAccepted(const v1::Accepted& accepted) override {}
  void OnNeedRows(const v1::NeedRows& need) override;
  bool OnPiece(v1::TextPiece piece) override;
  void OnDone(const absl::Status& status, const v1::DecodeEnd& end) override;

 private:
  // What is to be done, and with which calls: those of the moment in which it was said.
  struct Orders {
    AnswerActions actions;
    std::shared_ptr<DecodeCall> decode;
    std::vector<std::shared_ptr<EncodeCall>> pictures;
  };

  Orders Take(const AnswerEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Carries out what needs nothing of the event. `response`: of the end, where it is good.
  void Do(const Orders& orders,
          const v1::GenerateResponse& response = v1::GenerateResponse::default_instance());
  void Tell(const AnswerEvent& event);

  void AskTurn();
  void OnTurn(const absl::Status& status);
  void ResolvePictures();
  void OnPlanned(uint32_t picture, uint32_t rows);
  void Proceed(const std::vector<std::shared_ptr<EncodeCall>>& calls);
  // The rows of all pictures are known: not OK where they cannot fit, whatever the text.
  absl::Status CheckRows();
  void OnResolved(uint32_t picture, absl::StatusOr<ResolvedImage> image);
  void AskDecode();
  // Changes what decode is asked, or where, for the deadline's sake; not OK: it cannot be met.
  absl::Status ClimbLadder(v1::DecodeStart& start, Placement& placement);
  // For `attempt`, which had missed them.
  void OnRowsMade(uint32_t picture, uint32_t attempt, absl::StatusOr<ResolvedImage> image);
  // Keeps a picture's call and begins it, unless that is of no use any more.
  void Begin(const std::shared_ptr<EncodeCall>& call);
  // The error of a deadline: one stage in message and facts, decode's where the end came from
  // there.
  absl::Status Late(const absl::Status& status, absl::string_view reached) const;
  v1::GenerateResponse Respond(const v1::DecodeEnd& end);
  void End(const v1::GenerateResponse& response);

  const AnswerDeps deps_;
  const rpc::RequestContext request_;
  const absl::Time arrival_;
  AnswerSink& sink_;
  const Admission::Ticket ticket_;
  RequestTimeline timeline_;
  ParsedRequest parsed_;  // written before its turn
  WorkEstimate work_;     // written before its turn
  absl::Time asked_at_;   // for its turn
  absl::Time turn_at_;
  uint32_t shortened_to_ = 0;  // tokens, by AskDecode; 0: it was not
  // By decode's events only.
  absl::Time first_piece_ = absl::InfinitePast();
  Routed route_;

  base::Mutex mutex_;
  AnswerLife life_ ABSL_GUARDED_BY(mutex_);
  AnswerPictures pictures_ ABSL_GUARDED_BY(mutex_);
  // Begun, or about to be; those that have ended, too, until the answer begins.
  std::vector<std::shared_ptr<EncodeCall>> picture_calls_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DecodeCall> decode_call_ ABSL_GUARDED_BY(mutex_);  // until its last word
};

}  // namespace tessera::gateway
