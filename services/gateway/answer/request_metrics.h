#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/metrics/metrics.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/admission/deadline_ladder.h"
#include "services/gateway/fleet/vision_client.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::gateway {

// What a client called; the last two over HTTP.
enum class RequestKind { kGenerate, kGenerateStream, kUpload, kChat, kChatStream };

// A request that has ended without a RequestTimeline.
struct EndedRequest {
  RequestKind kind;
  const rpc::RequestContext& request;
  absl::Time arrival, end;
};

// The series that requests feed, all at 0 from the start; and the one line of the log, and the
// span, that tell of a request when it has ended. Any thread.
class RequestMetrics {
 public:
  // Both outlive it; `spans` may be null.
  explicit RequestMetrics(metrics::Metrics& metrics, rpc::SpanExporter* spans = nullptr);

  // A request has ended, or was refused at the door. `stage`: where it stood, of "admission",
  // "encode", "decode", "generation", "upload".
  void OnEnd(const EndedRequest& ended, const absl::Status& status, absl::string_view stage) const;
  // Only counted: whoever calls tells of it.
  void Count(RequestKind kind, const absl::Status& status, absl::string_view stage) const;
  // The work of a request was changed to meet its deadline.
  void OnDegraded(LadderStep step) const {
    const auto counter = static_cast<size_t>(step);
    if (counter < degraded_.size()) degraded_[counter].Increment();
  }

 private:
  friend class RequestTimeline;

  // One series for each gRPC status.
  using ByCode = std::array<std::optional<metrics::Counter>, 17>;
  // One for each error.type of the HTTP API, "none" and "cancelled".
  static constexpr size_t kErrorTypes = 8;
  using Durations = std::array<std::optional<metrics::Histogram>, kErrorTypes>;
  // One for each tier of a picture's rows.
  using FirstToken = std::array<std::optional<metrics::Histogram>, 6>;

  static ByCode RequestsOf(metrics::Metrics& metrics, RequestKind kind);
  static Durations DurationsOf(metrics::Metrics& metrics, absl::string_view stream);
  static FirstToken FirstTokenOf(metrics::Metrics& metrics);

  rpc::SpanExporter* const spans_;
  const std::array<ByCode, 3> requests_;      // by method
  const std::array<Durations, 2> durations_;  // not streamed, streamed
  const FirstToken first_token_;              // by tier
  const metrics::Gauge queued_;
  const metrics::Histogram inter_token_, per_token_;
  const metrics::Histogram prompt_tokens_, image_tokens_, output_tokens_, images_, image_bytes_;
  const metrics::Counter queue_full_, quota_, too_large_, draining_, deadline_, low_quality_;
  const std::array<metrics::Counter, 3> degraded_;  // by LadderStep
  const metrics::Counter left_admission_, left_encode_, left_decode_, left_generation_,
      left_upload_;
};

// One answer from arrival to end, told in order, by one call at a time; feeds RequestMetrics. That
// and the request outlive it. A piece allocates nothing.
class RequestTimeline {
 public:
  RequestTimeline(const RequestMetrics& metrics, RequestKind kind,
                  const rpc::RequestContext& request, absl::Time arrival);
  ~RequestTimeline() { LeaveQueue(); }
  RequestTimeline(const RequestTimeline&) = delete;
  RequestTimeline& operator=(const RequestTimeline&) = delete;

  // The request is well formed.
  void OnPictures(absl::Span<const Picture> pictures);
  void OnPiece(absl::Time now);
  // The only end. `response`: with its receipt where `status` is OK. `computed`: a picture was
  // encoded for this request, which no receipt tells where the answer failed.
  void OnEnd(absl::Time now, const absl::Status& status, absl::string_view stage,
             const v1::GenerateResponse& response, bool computed);

 private:
  void LeaveQueue();
  void Observe(const v1::Usage& usage) const;
  void Tell(absl::Time now, const absl::Status& status, absl::string_view stage,
            const v1::GenerateResponse& response) const;

  const RequestMetrics& metrics_;
  const RequestKind kind_;
  const rpc::RequestContext& request_;
  const absl::Time arrival_;
  bool queued_ = true;
  size_t pictures_ = 0;
  absl::Time first_piece_ = absl::InfinitePast();
  absl::Time last_piece_ = absl::InfinitePast();
};

}  // namespace tessera::gateway
