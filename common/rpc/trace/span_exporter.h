#pragma once

#include <grpcpp/client_context.h>

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/metrics/metrics.h"
#include "common/rpc/trace/span.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"

namespace tessera::rpc {

struct TraceOptions {
  std::string endpoint;  // host:port of a collector; empty: spans are not exported
  bool tls = false;
  std::string ca_file;  // PEM, whom to believe with TLS; empty: the system's authorities

  // Of the queue and of one message: spans with their stages.
  size_t max_queued = 4096;
  size_t max_batch = 512;
  absl::Duration interval = absl::Seconds(1);        // that spans wait for others
  absl::Duration timeout = absl::Seconds(5);         // of one try
  int tries = 5;                                     // then the batch is dropped
  absl::Duration backoff = absl::Milliseconds(200);  // before the second try; doubles
  absl::Duration flush = absl::Seconds(2);           // that the end waits for what is left
};

// Who makes the spans.
struct TraceSource {
  std::string version;
  std::string model;  // its name
};

// Sends spans to a collector: OTLP over gRPC, on a thread of its own. Nobody waits for it: what
// finds no room, or no collector, is dropped and counted. One line of the log when the collector
// stops taking spans, and when it takes them again. Any thread.
class SpanExporter {
 public:
  // Null where there is no collector; the series of dropped spans is there in any case. `metrics`
  // outlives the exporter.
  static std::unique_ptr<SpanExporter> Create(const TraceOptions& options,
                                              const TraceSource& source,
                                              std::shared_ptr<grpc::Channel> collector,
                                              metrics::Metrics& metrics);
  // Sends what is left, for at most options.flush.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Never waits. A span whose trace is not sampled is passed over.
  void Export(Span span);

 private:
  using Collector = opentelemetry::proto::collector::trace::v1::TraceService;
  using Request = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

  SpanExporter(const TraceOptions& options, const TraceSource& source,
               std::shared_ptr<grpc::Channel> channel, metrics::Counter dropped);

  void Run();
  std::vector<Span> NextBatch();
  // With all tries; what is not taken is dropped.
  void Send(const std::vector<Span>& batch);
  grpc::Status TryOnce(const Request& request, size_t spans);
  // False: the time at the end is over.
  bool WaitBeforeTry(absl::Duration backoff);
  void Tell(const grpc::Status& status);

  const TraceOptions options_;
  const TraceSource source_;
  const std::unique_ptr<Collector::Stub> stub_;
  const metrics::Counter dropped_;
  bool well_ = true;  // what was last logged; the thread's

  base::Mutex mutex_;
  base::CondVar wake_, done_;
  std::deque<Span> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_ ABSL_GUARDED_BY(mutex_) = 0;  // spans in it, with their stages
  grpc::ClientContext* trying_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;           // no more spans; send what is left
  bool flush_expired_ ABSL_GUARDED_BY(mutex_) = false;  // drop what is left
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace tessera::rpc
