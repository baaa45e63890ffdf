#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/request.h"
#include "services/decode/generate_call.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::decode {

// One Prefill call: computes ahead what the next question will begin with. What a question adds
// behind its pictures is not known yet, so the prompt is built twice, with unlike questions, and
// what both begin with is computed. Owns itself until OnDone.
class PrefillCall final : public grpc::ServerUnaryReactor,
                          public TokenSink,
                          public Deliverable,
                          public std::enable_shared_from_this<PrefillCall> {
 public:
  // The reactor of a new call. `request` and `response` live until OnDone.
  static PrefillCall* Start(const GenerateParts& parts, grpc::CallbackServerContext& context,
                            const v1::DecodeServicePrefillRequest& request,
                            v1::DecodeServicePrefillResponse& response);

  // --- gRPC ---
  void OnCancel() override;
  void OnDone() override;

  // --- the engine ---
  void OnAccepted(const Admission& admission) override;
  void OnNeedRows(absl::Span<const int32_t>) override {}  // not asked of ahead-work
  SinkAnswer OnTokens(absl::Span<const int32_t>, absl::Span<const kernels::Sampled>) override {
    return SinkAnswer::kContinue;  // ahead-work has no answer
  }
  void OnEnd(const absl::Status& status, const Outcome& outcome) override;

  // --- delivery ---
  void Deliver() override;

 private:
  PrefillCall(const GenerateParts& parts, absl::Time arrival, grpc::CallbackServerContext& context,
              const v1::DecodeServicePrefillRequest& request,
              v1::DecodeServicePrefillResponse& response)
      : parts_(parts),
        arrival_(arrival),
        wire_(context),
        context_(rpc::AcceptRequest(context, arrival, parts.deadline_cap, parts.spans != nullptr)),
        request_(request),
        response_(response) {}

  // On a prompt thread.
  absl::Status Submit();
  absl::StatusOr<Request> MakeRequest() const;
  void Conclude(absl::Status status);

  const GenerateParts parts_;
  const absl::Time arrival_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const rpc::RequestContext context_;
  const v1::DecodeServicePrefillRequest& request_;
  v1::DecodeServicePrefillResponse& response_;
  std::shared_ptr<PrefillCall> self_;  // until OnDone

  base::Mutex mutex_;
  std::optional<SequenceId> id_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);  // of the end
  absl::Time ended_ ABSL_GUARDED_BY(mutex_);                    // when that came
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
