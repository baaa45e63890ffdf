#include "common/rpc/trace/span_exporter.h"

#include <grpcpp/channel.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/metrics/names.h"
#include "common/rpc/trace/otlp.h"

namespace tessera::rpc {
namespace {

constexpr absl::Duration kMaxBackoff = absl::Seconds(5);

// Those of OTLP/gRPC's specification that are worth another try.
bool IsWorthATry(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::ABORTED:
    case grpc::StatusCode::OUT_OF_RANGE:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DATA_LOSS:
      return true;
    default:
      return false;
  }
}

size_t CountOf(const std::vector<Span>& spans) {
  size_t count = 0;
  for (const Span& span : spans) count += span.count();
  return count;
}

}  // namespace

std::unique_ptr<SpanExporter> SpanExporter::Create(const TraceOptions& options,
                                                   const TraceSource& source,
                                                   std::shared_ptr<grpc::Channel> collector,
                                                   metrics::Metrics& metrics) {
  const metrics::Counter dropped = metrics.GetCounter(metrics::kTraceSpansDropped);
  if (collector == nullptr) return nullptr;
  return std::unique_ptr<SpanExporter>(
      new SpanExporter(options, source, std::move(collector), dropped));
}

SpanExporter::SpanExporter(const TraceOptions& options, const TraceSource& source,
                           std::shared_ptr<grpc::Channel> channel, metrics::Counter dropped)
    : options_(options),
      source_(source),
      stub_(Collector::NewStub(channel)),
      dropped_(dropped),
      thread_([this] { Run(); }) {}

SpanExporter::~SpanExporter() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    wake_.SignalAll();
    base::Clock& clock = base::RealClock();
    const absl::Time end = clock.Now() + options_.flush;
    while (!ended_ && clock.Now() < end) clock.WaitUntil(done_, mutex_, end);
    flush_expired_ = true;
    if (trying_ != nullptr) trying_->TryCancel();
    wake_.SignalAll();
  }
  thread_.join();
}

void SpanExporter::Export(Span span) {
  if (!span.trace.sampled || span.trace.empty()) return;
  const size_t count = span.count();
  base::MutexLock lock(mutex_);
  if (stop_ || queued_ + count > options_.max_queued) return dropped_.Increment(count);
  queued_ += count;
  queue_.push_back(std::move(span));
  if (queued_ == count || queued_ >= options_.max_batch) wake_.Signal();
}

void SpanExporter::Run() {
  for (std::vector<Span> batch = NextBatch(); !batch.empty(); batch = NextBatch()) Send(batch);
  base::MutexLock lock(mutex_);
  ended_ = true;
  done_.SignalAll();
}

// Waits for a first span, then for others to go with it; none at the end.
std::vector<Span> SpanExporter::NextBatch() {
  base::MutexLock lock(mutex_);
  while (queue_.empty() && !stop_) wake_.Wait(mutex_);
  base::Clock& clock = base::RealClock();
  const absl::Time due = clock.Now() + options_.interval;
  while (!stop_ && queued_ < options_.max_batch && clock.Now() < due) {
    clock.WaitUntil(wake_, mutex_, due);
  }
  std::vector<Span> batch;
  size_t count = 0;
  while (!queue_.empty() &&
         (batch.empty() || count + queue_.front().count() <= options_.max_batch)) {
    count += queue_.front().count();
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  queued_ -= count;
  return batch;
}

void SpanExporter::Send(const std::vector<Span>& batch) {
  const Request request = ToOtlp(batch, source_.version, source_.model);
  const size_t spans = CountOf(batch);
  absl::Duration backoff = options_.backoff;
  for (int tries = 1;; ++tries) {
    const grpc::Status status = TryOnce(request, spans);
    Tell(status);
    if (status.ok()) return;
    if (!IsWorthATry(status.error_code()) || tries >= options_.tries || !WaitBeforeTry(backoff)) {
      break;
    }
    backoff = std::min(2 * backoff, kMaxBackoff);
  }
  dropped_.Increment(static_cast<double>(spans));
}

grpc::Status SpanExporter::TryOnce(const Request& request, size_t spans) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMicroseconds(options_.timeout));
  {
    base::MutexLock lock(mutex_);
    if (flush_expired_) return {grpc::StatusCode::CANCELLED, "the process ends"};
    trying_ = &context;
  }
  opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse response;
  const grpc::Status status = stub_->Export(&context, request, &response);
  {
    base::MutexLock lock(mutex_);
    trying_ = nullptr;
  }
  const int64_t rejected = response.partial_success().rejected_spans();
  if (status.ok() && rejected > 0) {
    dropped_.Increment(static_cast<double>(std::min<int64_t>(rejected, spans)));
  }
  return status;
}

// At the end there is no time to wait for better days: what is left of the tries follows at once.
bool SpanExporter::WaitBeforeTry(absl::Duration backoff) {
  base::Clock& clock = base::RealClock();
  const absl::Time due = clock.Now() + backoff;
  base::MutexLock lock(mutex_);
  while (!stop_ && clock.Now() < due) clock.WaitUntil(wake_, mutex_, due);
  return !flush_expired_;
}

void SpanExporter::Tell(const grpc::Status& status) {
  if (status.ok() == well_) return;
  well_ = status.ok();
  if (well_) {
    base::Log(base::LogLevel::kInfo,
              absl::StrCat("traces: the collector at ", options_.endpoint, " takes spans again"));
  } else {
    base::Log(
        base::LogLevel::kWarning,
        absl::StrCat("traces: the collector at ", options_.endpoint,
                     " takes no spans; they are dropped until it does: ", status.error_message()));
  }
}

}  // namespace tessera::rpc
