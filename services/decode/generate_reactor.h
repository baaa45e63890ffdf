#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/trace/request_context.h"
#include "services/decode/call_deps.h"
#include "services/decode/delivery.h"
#include "services/decode/engine/token_sink.h"
#include "services/decode/stream/text_stream.h"
#include "tessera/v1/decode.grpc.pb.h"

namespace tessera::decode {

// One call of Generate: the stream's reactor and the engine's sink in one object. Reads come on
// gRPC's threads, the prompt is made on a prompt thread, tokens come on the engine's, writes start
// on the delivery thread or where one has ended; one write is in flight. Owns itself until OnDone.
class GenerateReactor final : public grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest,
                                                             v1::DecodeServiceGenerateResponse>,
                              public TokenSink,
                              public Deliverable,
                              public std::enable_shared_from_this<GenerateReactor> {
 public:
  // The reactor of a new call; it has begun to read.
  static GenerateReactor* Start(const CallDeps& deps, grpc::CallbackServerContext& context);

  // --- gRPC ---
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // --- the engine ---
  void OnAccepted(const AcceptedRequest& accepted) override;
  void OnNeedRows(absl::Span<const int32_t> pictures) override;
  SinkAnswer OnTokens(absl::Span<const int32_t> ids,
                      absl::Span<const kernels::Sampled> sampled) override;
  void OnEnd(const absl::Status& status, const Outcome& outcome) override;

  // --- delivery ---
  void Deliver() override;

 private:
  GenerateReactor(const CallDeps& deps, absl::Time arrival, grpc::CallbackServerContext& wire);

  void Read();
  void OnStart(v1::DecodeStart start);
  void OnRowsReady(const v1::RowsReady& rows);
  void OnReadsClosed();
  // On a prompt thread: from messages into the engine.
  void Prepare(v1::DecodeStart start);
  absl::Status Submit(v1::DecodeStart start);

  void Conclude(absl::Status status);
  void Abort(absl::Status status);
  size_t WaitingBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleDelivery() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeResponse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const CallDeps deps_;
  const rpc::CallTracker::Token token_;
  const absl::Time arrival_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const rpc::RequestContext context_;
  std::shared_ptr<GenerateReactor> self_;       // until OnDone
  v1::DecodeServiceGenerateRequest request_;    // of the read under way
  v1::DecodeServiceGenerateResponse response_;  // of the write under way
  std::unique_ptr<TextStream> stream_;          // made before Submit, then the engine's thread's
  int top_logprobs_ = -1;  // AskedFor::top_logprobs; set before Submit, then constant

  base::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int32_t> awaited_pictures_
      ABSL_GUARDED_BY(mutex_);  // pictures of NeedRows, not answered
  std::optional<SequenceId> id_ ABSL_GUARDED_BY(mutex_);
  absl::Status abort_ ABSL_GUARDED_BY(mutex_);  // not OK: the client or the stream failed
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;    // the engine waits for Resume
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  // For log and trace.
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);
  absl::Time end_time_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // To be sent, in this order.
  std::optional<AcceptedRequest> accepted_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::TokenLogprob> logprobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> missing_pictures_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::DecodeEnd> end_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
