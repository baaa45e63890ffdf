#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/request.h"
#include "common/rpc/trace/request_context.h"
#include "services/decode/call_deps.h"
#include "services/decode/delivery.h"
#include "services/decode/engine/request.h"
#include "services/decode/engine/token_sink.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::decode {

// One call of Prefill: computes ahead what the next question will begin with. What a question adds
// behind its pictures is not known yet, so the prompt is built twice, with unlike questions, and
// what both begin with is computed. Owns itself until OnDone.
class PrefillReactor final : public grpc::ServerUnaryReactor,
                             public TokenSink,
                             public Deliverable,
                             public std::enable_shared_from_this<PrefillReactor> {
 public:
  // The reactor of a new call. `request` and `response` live until OnDone.
  static PrefillReactor* Start(const CallDeps& deps, grpc::CallbackServerContext& context,
                               const v1::DecodeServicePrefillRequest& request,
                               v1::DecodeServicePrefillResponse& response);

  // --- gRPC ---
  void OnCancel() override;
  void OnDone() override;

  // --- the engine ---
  void OnAccepted(const AcceptedRequest& accepted) override;
  void OnNeedRows(absl::Span<const int32_t>) override {}  // not asked of ahead-work
  SinkAnswer OnTokens(absl::Span<const int32_t>, absl::Span<const kernels::Sampled>) override {
    return SinkAnswer::kContinue;  // ahead-work has no answer
  }
  void OnEnd(const absl::Status& status, const Outcome& outcome) override;

  // --- delivery ---
  void Deliver() override;

 private:
  PrefillReactor(const CallDeps& deps, absl::Time arrival, grpc::CallbackServerContext& context,
                 const v1::DecodeServicePrefillRequest& request,
                 v1::DecodeServicePrefillResponse& response)
      : deps_(deps),
        arrival_(arrival),
        wire_(context),
        context_(rpc::AcceptRequest(context, arrival, deps.deadline_cap, deps.spans != nullptr)),
        request_(request),
        response_(response) {}

  // On a prompt thread.
  absl::Status Submit();
  absl::StatusOr<Request> MakeRequest() const;
  void Conclude(absl::Status status);

  const CallDeps deps_;
  const absl::Time arrival_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const rpc::RequestContext context_;
  const v1::DecodeServicePrefillRequest& request_;
  v1::DecodeServicePrefillResponse& response_;
  std::shared_ptr<PrefillReactor> self_;  // until OnDone

  base::Mutex mutex_;
  std::optional<SequenceId> id_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // of the end
  absl::Time end_time_ ABSL_GUARDED_BY(mutex_);
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
