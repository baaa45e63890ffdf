#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/admission/admission.h"
#include "services/gateway/admission/pace.h"
#include "services/gateway/answer/answer_options.h"
#include "services/gateway/answer/answer_pictures.h"
#include "services/gateway/answer/request_metrics.h"
#include "services/gateway/answer/running_requests.h"
#include "services/gateway/answer/validate.h"
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

// One request on its way: its turn, pictures to refs, then decode, then pieces to the sink. Any
// thread; keeps itself alive until the sink has had its end.
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
  void Start(const v1::GenerateRequest& request, const std::string& tenant);
  // The end comes with CANCELLED, unless it came before; or, where the client has waited until its
  // deadline, with DEADLINE_EXCEEDED.
  void Cancel();
  void Abort(const absl::Status& status) override { Stop(status, true); }
  // The sink takes pieces again, after it had said that it does not.
  void Resume();
  // The sink has not done so in time (SinkDeadline): the end comes with RESOURCE_EXHAUSTED,
  // SLOW_CLIENT, or DEADLINE_EXCEEDED. While a sink is full nobody else sees the deadline pass.
  void GiveUpSlowClient();
  // How long a sink that is full from `now` on may stay so.
  absl::Time SinkDeadline(absl::Time now) const;

  void OnRouted(const Routed& routed) override {
    by_ = routed;
    base::MutexLock lock(mutex_);
    ++try_;
  }
  void OnAccepted(const v1::Accepted& accepted) override {}
  void OnNeedRows(const v1::NeedRows& need) override;
  bool OnPiece(v1::TextPiece piece) override;
  void OnDone(const absl::Status& status, const v1::DecodeEnd& end) override;

 private:
  // It is let in, or is not.
  void OnTurn(const absl::Status& status);
  void OnResolved(size_t index, absl::StatusOr<ResolvedImage> image);
  // For try `number`, which had asked for them.
  void OnRowsMade(uint32_t picture, int number, absl::StatusOr<ResolvedImage> image);
  // With the first piece. False: it is of a try that was cancelled to ask anew, and is not told.
  bool BeginTelling() {
    base::MutexLock lock(mutex_);
    return told_ = !again_;
  }
  void StartDecode();
  // Changes what decode is asked, or where, for the deadline's sake; not OK: it cannot be met.
  absl::Status ClimbLadder(v1::DecodeStart& start, Placement& placement);
  void SayWhatIsLeftOut(v1::TextPiece& piece);
  // Decode has read the pictures' rows, or never will. Allocates nothing when none are kept.
  void LetGoOfRows();
  // With the first piece.
  void LetGoOfPictures();
  void KeepCall(std::shared_ptr<Call> call);
  void CancelCalls();
  // `told`: the end has `status`, whatever decode says of its own.
  void Stop(const absl::Status& status, bool told);
  // The error of a deadline: one stage in message and facts, decode's where the end came from
  // there.
  absl::Status Late(const absl::Status& status) const;
  v1::GenerateResponse Respond(const v1::DecodeEnd& end);
  // The first end wins; later ones are ignored.
  void End(const absl::Status& status, const v1::GenerateResponse& response);

  const AnswerDeps deps_;
  const rpc::RequestContext request_;
  const absl::Time arrival_;
  AnswerSink& sink_;
  const Admission::Ticket ticket_;
  RequestTimeline timeline_;
  ParsedRequest parsed_;  // written before its turn, as the next
  WorkEstimate work_;
  std::atomic<const char*> stage_{"admission"};  // reached so far, for the error of a deadline

  base::Mutex mutex_;
  AnswerPictures pictures_ ABSL_GUARDED_BY(mutex_);
  bool again_ ABSL_GUARDED_BY(mutex_) = false;  // decode was cancelled to be asked anew
  bool told_ ABSL_GUARDED_BY(mutex_) = false;   // something of the answer: none is asked anew
  int try_ ABSL_GUARDED_BY(mutex_) = 0;         // one more with each replica and each end
  std::vector<std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<DecodeCall> decode_call_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // why decode was cancelled, if we did it
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool decoding_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time asked_at_, admitted_;                 // for its turn
  uint32_t shortened_to_ = 0;                      // tokens, by StartDecode; 0: it was not
  absl::Time first_piece_ = absl::InfinitePast();  // by decode's events only, as is by_
  Routed by_;
};

}  // namespace tessera::gateway
