#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/worker_pool.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/trace/request_context.h"
#include "common/rpc/trace/span_exporter.h"
#include "common/text/tokenizer.h"
#include "services/decode/delivery.h"
#include "services/decode/engine/engine.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/decode/stream/text_stream.h"
#include "tessera/v1/decode.grpc.pb.h"

namespace tessera::decode {

// CANCELLED (CLIENT_GONE): how a call ends that its caller has left.
absl::Status ClientGone();

// What every Generate call uses; all outlive the calls.
struct GenerateParts {
  Engine& engine;
  const PromptBuilder& prompts;
  const text::Tokenizer& tokenizer;
  base::WorkerPool& prompt_threads;  // templates and tokenizing
  Delivery& delivery;                // starts the writes
  base::Clock& clock;
  int64_t row_width = 0;  // columns of a picture's row
  size_t sink_bytes = 0;  // text that a client may leave unread before its answer is paused
  absl::Duration deadline_cap;
  rpc::SpanExporter* spans = nullptr;  // null: spans go nowhere
  std::shared_ptr<rpc::CallTracker> calls = std::make_shared<rpc::CallTracker>();
};

// One Generate call: the stream's reactor and the engine's sink in one object. Reads come on gRPC's
// threads, the prompt is made on a prompt thread, tokens come on the engine's, writes start on the
// delivery thread or where one has ended; one write is in flight. Owns itself until OnDone.
class GenerateCall final : public grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest,
                                                          v1::DecodeServiceGenerateResponse>,
                           public TokenSink,
                           public Deliverable,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  // The reactor of a new call; it has begun to read.
  static GenerateCall* Start(const GenerateParts& parts, grpc::CallbackServerContext& context);

  // --- gRPC ---
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // --- the engine ---
  void OnAccepted(const Admission& admission) override;
  void OnNeedRows(absl::Span<const int32_t> pictures) override;
  SinkAnswer OnTokens(absl::Span<const int32_t> ids,
                      absl::Span<const kernels::Sampled> sampled) override;
  void OnEnd(const absl::Status& status, const Outcome& outcome) override;

  // --- delivery ---
  void Deliver() override;

 private:
  GenerateCall(const GenerateParts& parts, absl::Time arrival, grpc::CallbackServerContext& wire);

  void Read();
  void OnStart(v1::DecodeStart start);
  void OnRowsReady(const v1::RowsReady& rows);
  void OnReadsClosed();
  // On a prompt thread: from messages into the engine.
  void Prepare(const v1::DecodeStart& start);
  absl::Status Submit(const v1::DecodeStart& start);

  void Conclude(absl::Status status);
  void Abort(absl::Status status);
  size_t WaitingBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleDelivery() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeResponse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const GenerateParts parts_;
  const rpc::CallTracker::Token token_;
  const absl::Time arrival_;
  const grpc::CallbackServerContext& wire_;  // lives until OnDone
  const rpc::RequestContext context_;
  std::shared_ptr<GenerateCall> self_;          // until OnDone
  v1::DecodeServiceGenerateRequest request_;    // of the read under way
  v1::DecodeServiceGenerateResponse response_;  // of the write under way
  std::unique_ptr<TextStream> stream_;          // made before Submit, then the engine's thread's
  int top_logprobs_ = -1;                       // as AskedFor's; as stream_

  base::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int32_t> awaited_ ABSL_GUARDED_BY(mutex_);  // pictures of NeedRows, not answered
  std::optional<SequenceId> id_ ABSL_GUARDED_BY(mutex_);
  absl::Status abort_ ABSL_GUARDED_BY(mutex_);  // not OK: the client or the stream failed
  bool scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;    // the engine waits for Resume
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;  // Finish was called
  Outcome outcome_ ABSL_GUARDED_BY(mutex_);        // for log and trace, as is the next
  absl::Time ended_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();

  // To be sent, in this order.
  std::optional<Admission> admission_ ABSL_GUARDED_BY(mutex_);
  std::string text_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::TokenLogprob> logprobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> need_rows_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::DecodeEnd> end_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::decode
