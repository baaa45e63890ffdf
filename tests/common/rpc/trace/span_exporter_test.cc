#include "common/rpc/trace/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/collector.h"
#include "common/rpc/server.h"
#include "common/rpc/trace/request_end.h"

namespace tessera::rpc {
namespace {

namespace otlp = opentelemetry::proto::collector::trace::v1;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kPatience = absl::Minutes(2);

// A collector that does with each batch what it is told to do.
class FakeCollector final : public otlp::TraceService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Export(grpc::CallbackServerContext* context,
                                   const otlp::ExportTraceServiceRequest* request,
                                   otlp::ExportTraceServiceResponse* response) override {
    class Never final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    base::MutexLock lock(mutex_);
    calls_ += 1;
    changed_.SignalAll();
    if (hang_) return new Never();
    if (status_.ok()) {
      for (const auto& resource : request->resource_spans()) {
        for (const auto& scope : resource.scope_spans()) {
          for (const auto& span : scope.spans()) spans_.push_back(span);
        }
        resources_.push_back(resource.resource());
      }
      response->mutable_partial_success()->set_rejected_spans(rejected_);
    }
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(status_);
    return reactor;
  }

  void Answer(grpc::Status status) {
    base::MutexLock lock(mutex_);
    status_ = std::move(status);
  }
  void Hang() {
    base::MutexLock lock(mutex_);
    hang_ = true;
  }
  void Reject(int64_t spans) {
    base::MutexLock lock(mutex_);
    rejected_ = spans;
  }
  void AwaitCalls(int calls) {
    Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return calls_ >= calls; });
  }
  std::vector<opentelemetry::proto::trace::v1::Span> AwaitSpans(size_t count) {
    Await([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return spans_.size() >= count; });
    base::MutexLock lock(mutex_);
    return spans_;
  }
  std::string Resources() {
    base::MutexLock lock(mutex_);
    std::string all;
    for (const auto& resource : resources_) absl::StrAppend(&all, resource.ShortDebugString());
    return all;
  }

 private:
  void Await(const std::function<bool()>& condition) {
    const absl::Time end = absl::Now() + kPatience;
    base::MutexLock lock(mutex_);
    while (!condition() && absl::Now() < end) changed_.WaitFor(mutex_, absl::Milliseconds(20));
    ASSERT_TRUE(condition());
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  bool hang_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t rejected_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<opentelemetry::proto::trace::v1::Span> spans_ ABSL_GUARDED_BY(mutex_);
  std::vector<opentelemetry::proto::resource::v1::Resource> resources_ ABSL_GUARDED_BY(mutex_);
};

Span SpanOf(const std::string& name, bool sampled = true) {
  Span span;
  span.service = "decode";
  span.name = name;
  span.trace = BeginSpan("", sampled);
  span.start = absl::FromUnixSeconds(1'700'000'000);
  span.end = span.start + absl::Seconds(2);
  return span;
}

class SpanExporterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    server_ = *Server::Start({.address = "127.0.0.1:0"}, {&collector_}, {});
    options_.endpoint = absl::StrCat("127.0.0.1:", server_->port());
    options_.interval = absl::Milliseconds(1);
    options_.backoff = absl::Milliseconds(1);
    options_.timeout = kPatience;
    options_.flush = kPatience;
    options_.tries = 1'000'000;
  }
  std::unique_ptr<SpanExporter> Make() {
    return SpanExporter::Create(options_, {"1.0", "shelf"}, *ConnectCollector(options_), metrics_);
  }
  double dropped() { return metrics_.GetCounter(kDropped).value(); }
  void AwaitDropped(double count) {
    const absl::Time end = absl::Now() + kPatience;
    while (dropped() < count && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(dropped(), count);
  }

  static constexpr metrics::CounterName kDropped{
      {"tessera_trace_spans_dropped_total", "Spans that no collector has taken."}};
  metrics::Metrics metrics_{"m"};
  FakeCollector collector_;
  std::unique_ptr<Server> server_;
  TraceOptions options_;
};

TEST_F(SpanExporterTest, ASpanComesWithItsStagesAndItsService) {
  Span span = SpanOf("tessera.v1.DecodeService/Generate");
  span.trace.parent_id = "12345678";
  span.attributes = {
      {"text", std::string("t")}, {"whole", int64_t{7}}, {"part", 0.5}, {"is", true}};
  span.events = {{"first_token", span.start + absl::Seconds(1)}};
  span.stages = {{"prefill", span.start, span.start + absl::Seconds(1)}};
  span.code = absl::StatusCode::kInternal;
  span.error = "DEVICE";
  Make()->Export(span);
  const auto got = collector_.AwaitSpans(2);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].trace_id(), span.trace.trace_id);
  EXPECT_EQ(got[0].span_id(), span.trace.span_id);
  EXPECT_EQ(got[0].parent_span_id(), "12345678");
  EXPECT_EQ(got[0].start_time_unix_nano(), 1'700'000'000'000'000'000u);
  EXPECT_EQ(got[0].end_time_unix_nano(), 1'700'000'002'000'000'000u);
  EXPECT_EQ(got[0].attributes_size(), 4);
  EXPECT_EQ(got[0].events(0).time_unix_nano(), 1'700'000'001'000'000'000u);
  EXPECT_EQ(got[0].status().code(), opentelemetry::proto::trace::v1::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(got[0].status().message(), "DEVICE");
  EXPECT_EQ(got[1].name(), "prefill");
  EXPECT_EQ(got[1].trace_id(), span.trace.trace_id);
  EXPECT_EQ(got[1].parent_span_id(), span.trace.span_id);
  EXPECT_EQ(got[1].end_time_unix_nano(), 1'700'000'001'000'000'000u);
  EXPECT_THAT(collector_.Resources(), HasSubstr("tessera-decode"));
  EXPECT_THAT(collector_.Resources(), HasSubstr("shelf"));
  EXPECT_EQ(dropped(), 0);
}

TEST_F(SpanExporterTest, WhatIsNotSampledStaysHere) {
  {
    const auto exporter = Make();
    exporter->Export(SpanOf("not this one", false));
    exporter->Export(SpanOf("this one"));
  }
  const auto got = collector_.AwaitSpans(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].name(), "this one");
  EXPECT_EQ(dropped(), 0);
}

TEST_F(SpanExporterTest, TheEndSendsWhatIsLeft) {
  options_.interval = absl::Hours(1);
  {
    const auto exporter = Make();
    for (int i = 0; i < 100; ++i) exporter->Export(SpanOf("x"));
  }
  EXPECT_EQ(collector_.AwaitSpans(100).size(), 100u);
  EXPECT_EQ(dropped(), 0);
}

TEST_F(SpanExporterTest, AFullQueueDropsAndCountsAndNobodyWaits) {
  collector_.Hang();
  options_.max_queued = 10;
  options_.max_batch = 4;
  options_.flush = absl::ZeroDuration();
  {
    const auto exporter = Make();
    exporter->Export(SpanOf("on its way"));
    collector_.AwaitCalls(1);
    for (int i = 0; i < 25; ++i) exporter->Export(SpanOf("x"));
    EXPECT_EQ(dropped(), 15);  // while the collector hangs
    Span large = SpanOf("with more stages than there is room");
    large.stages.resize(20);
    exporter->Export(large);
    EXPECT_EQ(dropped(), 36);
  }
  EXPECT_EQ(dropped(), 47);  // what was left
}

TEST_F(SpanExporterTest, ACollectorThatIsBusyIsAskedAgain) {
  collector_.Answer({grpc::StatusCode::UNAVAILABLE, "busy"});
  const auto exporter = Make();
  exporter->Export(SpanOf("x"));
  collector_.AwaitCalls(3);
  collector_.Answer(grpc::Status::OK);
  EXPECT_EQ(collector_.AwaitSpans(1).size(), 1u);
  EXPECT_EQ(dropped(), 0);
}

TEST_F(SpanExporterTest, WhatACollectorRefusesIsDropped) {
  collector_.Answer({grpc::StatusCode::INVALID_ARGUMENT, "no"});
  const auto exporter = Make();
  exporter->Export(SpanOf("x"));
  AwaitDropped(1);
  collector_.Answer(grpc::Status::OK);
  collector_.Reject(1);
  exporter->Export(SpanOf("y"));
  AwaitDropped(2);
}

TEST_F(SpanExporterTest, WithoutACollectorSpansAreDroppedAndOneLineSaysSo) {
  server_->Shutdown(absl::ZeroDuration());
  options_.tries = 2;
  ::testing::internal::CaptureStderr();
  {
    const auto exporter = Make();
    for (int i = 1; i <= 3; ++i) {
      exporter->Export(SpanOf("x"));
      AwaitDropped(i);
    }
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  EXPECT_THAT(log, HasSubstr("takes no spans"));
}

TEST_F(SpanExporterTest, OptionsThatCannotBeAreRefused) {
  options_.endpoint = "";
  const auto none = ConnectCollector(options_);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, nullptr);
  EXPECT_EQ(SpanExporter::Create(options_, {}, *none, metrics_), nullptr);
  EXPECT_THAT(metrics_.Text(), HasSubstr("tessera_trace_spans_dropped_total{model_name=\"m\"} 0"));
  options_.endpoint = "nonsense";
  EXPECT_EQ(base::FieldOf(ConnectCollector(options_).status()), "otlp_endpoint");
  options_.endpoint = "127.0.0.1:4317";
  options_.ca_file = "ca.pem";
  EXPECT_EQ(base::FieldOf(ConnectCollector(options_).status()), "otlp_tls_ca_file");
  options_.tls = true;
  options_.ca_file = "/nowhere/ca.pem";
  EXPECT_EQ(base::FieldOf(ConnectCollector(options_).status()), "otlp_tls_ca_file");
}

TEST_F(SpanExporterTest, TheEndOfARequestIsOneLineAndOneSpanWithoutItsMessage) {
  RequestContext request;
  request.request_id = "id\"1";
  request.trace = BeginSpan("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false);
  const absl::Status status =
      base::Error(absl::StatusCode::kUnavailable, "DRAINING", "what the user said");
  ::testing::internal::CaptureStderr();
  {
    const auto exporter = Make();
    TellEnd({.service = "gateway",
             .method = "Generate",
             .protocol = "grpc",
             .request = request,
             .start = absl::FromUnixSeconds(1),
             .end = absl::FromUnixSeconds(3),
             .status = status,
             .facts = {{"images", 2}, {"output_tokens", 5}}},
            exporter.get());
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
  EXPECT_THAT(log, Not(HasSubstr("what the user said")));
  const auto line = base::ParseJson(log);
  ASSERT_TRUE(line.ok()) << log;
  EXPECT_EQ((*line)["event"], "request");
  EXPECT_EQ((*line)["service"], "gateway");
  EXPECT_EQ((*line)["request_id"], "id\"1");
  EXPECT_EQ((*line)["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ((*line)["span_id"], base::ToHex(request.trace.span_id));
  EXPECT_EQ((*line)["code"], "UNAVAILABLE");
  EXPECT_EQ((*line)["reason"], "DRAINING");
  EXPECT_EQ((*line)["seconds"], 2);
  EXPECT_EQ((*line)["images"], 2);
  const auto spans = collector_.AwaitSpans(1);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0].name(), "tessera.v1.GatewayService/Generate");
  EXPECT_EQ(base::ToHex(spans[0].parent_span_id()), "b7ad6b7169203331");
  const std::string text = spans[0].ShortDebugString();
  EXPECT_THAT(text, HasSubstr("gen_ai.usage.output_tokens"));
  EXPECT_THAT(text, HasSubstr("tessera.request_id"));
  EXPECT_THAT(text, Not(HasSubstr("what the user said")));
}

}  // namespace
}  // namespace tessera::rpc
