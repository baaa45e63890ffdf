#include "services/gateway/answer/request_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "common/base/error.h"
#include "common/metrics/names.h"
#include "common/rpc/trace/request_end.h"

namespace tessera::gateway {
namespace {

constexpr const char* kErrorTypeNames[] = {"none",
                                           "invalid_request_error",
                                           "not_found_error",
                                           "authentication_error",
                                           "rate_limit_error",
                                           "unavailable_error",
                                           "server_error",
                                           "cancelled"};

// Of kErrorTypeNames.
size_t ErrorTypeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 1;
    case absl::StatusCode::kNotFound:
      return 2;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return 3;
    case absl::StatusCode::kResourceExhausted:
      return 4;
    case absl::StatusCode::kUnavailable:
      return 5;
    case absl::StatusCode::kCancelled:
      return 7;
    default:
      return 6;
  }
}

constexpr const char* kTiers[] = {"none", "prefix_kv", "local", "store", "origin", "computed"};

bool IsStream(RequestKind kind) {
  return kind == RequestKind::kGenerateStream || kind == RequestKind::kChatStream;
}

// Of the metrics: over HTTP the same is asked for.
RequestKind MethodOf(RequestKind kind) {
  if (kind == RequestKind::kUpload) return kind;
  return IsStream(kind) ? RequestKind::kGenerateStream : RequestKind::kGenerate;
}

const char* NameOf(RequestKind method) {
  return method == RequestKind::kGenerate         ? "Generate"
         : method == RequestKind::kGenerateStream ? "GenerateStream"
                                                  : "UploadImage";
}

rpc::RequestEnd EndOf(const EndedRequest& ended, const absl::Status& status,
                      absl::string_view stage) {
  const bool http = ended.kind == RequestKind::kChat || ended.kind == RequestKind::kChatStream;
  rpc::RequestEnd end = {.service = "gateway",
                         .method = http ? "ChatCompletions" : NameOf(ended.kind),
                         .protocol = http ? "http" : "grpc",
                         .request = ended.request,
                         .start = ended.arrival,
                         .end = ended.end,
                         .status = status,
                         .facts = {{"stream", IsStream(ended.kind)}}};
  if (!status.ok()) end.facts.emplace_back("stage", stage);
  return end;
}

// The costliest tier of an answer's pictures.
size_t TierOf(const v1::Receipt& receipt) {
  int tier = v1::CACHE_TIER_UNSPECIFIED;
  for (const v1::ImageReceipt& image : receipt.images()) tier = std::max<int>(tier, image.cache());
  return static_cast<size_t>(tier);
}

}  // namespace

RequestMetrics::ByCode RequestMetrics::RequestsOf(metrics::Metrics& metrics, RequestKind kind) {
  const char* stream = IsStream(kind) ? "true" : "false";
  ByCode counters;
  for (size_t code = 0; code < counters.size(); ++code) {
    const std::string name = absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
    counters[code] = metrics.GetCounter(metrics::kGatewayRequests, {NameOf(kind), name, stream});
  }
  return counters;
}

RequestMetrics::Durations RequestMetrics::DurationsOf(metrics::Metrics& metrics,
                                                      absl::string_view stream) {
  Durations durations;
  for (size_t i = 0; i < kErrorTypes; ++i) {
    durations[i] =
        metrics.GetHistogram(metrics::kGatewayRequestDuration, {stream, kErrorTypeNames[i]});
  }
  return durations;
}

RequestMetrics::FirstToken RequestMetrics::FirstTokenOf(metrics::Metrics& metrics) {
  FirstToken first_token;
  for (size_t tier = 0; tier < first_token.size(); ++tier) {
    first_token[tier] = metrics.GetHistogram(metrics::kGatewayTimeToFirstToken, {kTiers[tier]});
  }
  return first_token;
}

RequestMetrics::RequestMetrics(metrics::Metrics& metrics, rpc::SpanExporter* spans)
    : spans_(spans),
      requests_{RequestsOf(metrics, RequestKind::kGenerate),
                RequestsOf(metrics, RequestKind::kGenerateStream),
                RequestsOf(metrics, RequestKind::kUpload)},
      durations_{DurationsOf(metrics, "false"), DurationsOf(metrics, "true")},
      first_token_(FirstTokenOf(metrics)),
      queued_(metrics.GetGauge(metrics::kGatewayQueuedRequests)),
      inter_token_(metrics.GetHistogram(metrics::kGatewayInterTokenLatency)),
      per_token_(metrics.GetHistogram(metrics::kGatewayTimePerOutputToken)),
      prompt_tokens_(metrics.GetHistogram(metrics::kGatewayRequestPromptTokens)),
      image_tokens_(metrics.GetHistogram(metrics::kGatewayRequestImageTokens)),
      output_tokens_(metrics.GetHistogram(metrics::kGatewayRequestOutputTokens)),
      images_(metrics.GetHistogram(metrics::kGatewayRequestImages)),
      image_bytes_(metrics.GetHistogram(metrics::kGatewayImageBytes)),
      queue_full_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"queue_full"})),
      quota_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"quota"})),
      too_large_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"too_large"})),
      draining_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"draining"})),
      deadline_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"deadline"})),
      low_quality_(metrics.GetCounter(metrics::kGatewayRejectedRequests, {"quality"})),
      degraded_{metrics.GetCounter(metrics::kGatewayDegradedRequests, {"rows"}),
                metrics.GetCounter(metrics::kGatewayDegradedRequests, {"output"}),
                metrics.GetCounter(metrics::kGatewayDegradedRequests, {"redirect"})},
      left_admission_(metrics.GetCounter(metrics::kGatewayClientCancellations, {"admission"})),
      left_encode_(metrics.GetCounter(metrics::kGatewayClientCancellations, {"encode"})),
      left_decode_(metrics.GetCounter(metrics::kGatewayClientCancellations, {"decode"})),
      left_generation_(metrics.GetCounter(metrics::kGatewayClientCancellations, {"generation"})),
      left_upload_(metrics.GetCounter(metrics::kGatewayClientCancellations, {"upload"})) {}

void RequestMetrics::OnEnd(const EndedRequest& ended, const absl::Status& status,
                           absl::string_view stage) const {
  Count(ended.kind, status, stage);
  rpc::TellEnd(EndOf(ended, status, stage), spans_);
}

void RequestMetrics::Count(RequestKind kind, const absl::Status& status,
                           absl::string_view stage) const {
  const auto code = static_cast<size_t>(status.code());
  const ByCode& requests = requests_[static_cast<size_t>(MethodOf(kind))];
  requests[code < requests.size() ? code : 2 /* unknown */]->Increment();
  if (status.ok()) return;
  const std::string reason = base::ReasonOf(status);
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
      if (reason == "SLOW_CLIENT") return;  // it was taken, and begun
      return (absl::StrContains(reason, "QUOTA") ? quota_ : queue_full_).Increment();
    case absl::StatusCode::kUnavailable:
      if (reason == "DRAINING") draining_.Increment();
      if (reason == "BODIES_FULL") queue_full_.Increment();
      return;
    case absl::StatusCode::kDeadlineExceeded:
      if (stage != "generation") deadline_.Increment();
      return;
    case absl::StatusCode::kInvalidArgument:
      if (reason == "IMAGE_QUALITY") low_quality_.Increment();
      if (absl::EndsWith(reason, "TOO_LARGE") || absl::EndsWith(reason, "TOO_LONG")) {
        too_large_.Increment();
      }
      return;
    case absl::StatusCode::kCancelled:
      return (stage == "encode"       ? left_encode_
              : stage == "decode"     ? left_decode_
              : stage == "generation" ? left_generation_
              : stage == "upload"     ? left_upload_
                                      : left_admission_)
          .Increment();
    default:
      return;
  }
}

RequestTimeline::RequestTimeline(const RequestMetrics& metrics, RequestKind kind,
                                 const rpc::RequestContext& request, absl::Time arrival)
    : metrics_(metrics), kind_(kind), request_(request), arrival_(arrival) {
  metrics_.queued_.Add(1);
}

void RequestTimeline::LeaveQueue() {
  if (queued_) metrics_.queued_.Add(-1);
  queued_ = false;
}

void RequestTimeline::OnPictures(absl::Span<const Picture> pictures) {
  pictures_ = pictures.size();
  metrics_.images_.Observe(static_cast<double>(pictures.size()));
  for (const Picture& picture : pictures) {
    if (picture.size > 0) metrics_.image_bytes_.Observe(static_cast<double>(picture.size));
  }
}

void RequestTimeline::OnPiece(absl::Time now) {
  if (first_piece_ == absl::InfinitePast()) {
    first_piece_ = now;
    LeaveQueue();
  } else {
    metrics_.inter_token_.Observe(absl::ToDoubleSeconds(now - last_piece_));
  }
  last_piece_ = now;
}

void RequestTimeline::OnEnd(absl::Time now, const absl::Status& status, absl::string_view stage,
                            const v1::GenerateResponse& response, bool computed) {
  LeaveQueue();
  metrics_.Count(kind_, status, stage);
  const auto& durations = metrics_.durations_[IsStream(kind_) ? 1 : 0];
  durations[ErrorTypeOf(status.code())]->Observe(absl::ToDoubleSeconds(now - arrival_));
  if (first_piece_ != absl::InfinitePast()) {
    size_t tier = pictures_ == 0 ? 0 : computed ? v1::CACHE_TIER_COMPUTED : v1::CACHE_TIER_LOCAL;
    if (status.ok()) tier = TierOf(response.receipt());
    metrics_.first_token_[std::min<size_t>(tier, v1::CACHE_TIER_COMPUTED)]->Observe(
        absl::ToDoubleSeconds(first_piece_ - arrival_));
  }
  if (status.ok()) Observe(response.usage());
  Tell(now, status, stage, response);
}

void RequestTimeline::Observe(const v1::Usage& usage) const {
  metrics_.prompt_tokens_.Observe(usage.prompt_tokens());
  metrics_.image_tokens_.Observe(usage.image_tokens());
  metrics_.output_tokens_.Observe(usage.output_tokens());
  if (first_piece_ != absl::InfinitePast() && usage.output_tokens() > 1) {
    metrics_.per_token_.Observe(absl::ToDoubleSeconds(last_piece_ - first_piece_) /
                                (usage.output_tokens() - 1));
  }
}

void RequestTimeline::Tell(absl::Time now, const absl::Status& status, absl::string_view stage,
                           const v1::GenerateResponse& response) const {
  rpc::RequestEnd end = EndOf({kind_, request_, arrival_, now}, status, stage);
  end.facts.emplace_back("images", pictures_);
  if (first_piece_ != absl::InfinitePast()) {
    end.facts.emplace_back("first_token_seconds", absl::ToDoubleSeconds(first_piece_ - arrival_));
    end.events.emplace_back("first_token", first_piece_);
  }
  const v1::Receipt& receipt = response.receipt();
  if (status.ok()) {
    const v1::Usage& usage = response.usage();
    const size_t tier = std::min<size_t>(TierOf(receipt), v1::CACHE_TIER_COMPUTED);
    end.facts.emplace_back("prompt_tokens", usage.prompt_tokens());
    end.facts.emplace_back("image_tokens", usage.image_tokens());
    end.facts.emplace_back("cached_tokens", usage.cached_tokens());
    end.facts.emplace_back("output_tokens", usage.output_tokens());
    end.facts.emplace_back("cache", kTiers[tier]);
    end.facts.emplace_back("degraded", receipt.degraded_size());
    if (!receipt.replica().empty()) end.facts.emplace_back("replica", receipt.replica());
  }
  rpc::TellEnd(std::move(end), metrics_.spans_);
}

}  // namespace tessera::gateway
