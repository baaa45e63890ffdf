#include "common/rpc/call_metrics.h"

#include <google/protobuf/descriptor.h>

#include <array>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "common/metrics/names.h"

namespace tessera::rpc {
namespace {

using grpc::experimental::InterceptionHookPoints;

constexpr char kOther[] = "other";
constexpr int kCodes = 17;  // of gRPC

// The series of one method. Any thread.
class MethodSeries {
 public:
  MethodSeries(metrics::Metrics& metrics, const std::string& method)
      : metrics_(metrics),
        method_(method),
        started_(metrics.GetCounter(metrics::kGrpcServerCallsStarted, {method})) {
    Ended(grpc::StatusCode::OK);
  }

  void Start() const { started_.Increment(); }
  void End(grpc::StatusCode code, absl::Duration time) {
    Ended(code).Observe(absl::ToDoubleSeconds(time));
  }

 private:
  metrics::Histogram Ended(grpc::StatusCode code) {
    const bool known = code >= 0 && code < kCodes;
    const int place = known ? code : grpc::StatusCode::UNKNOWN;
    base::MutexLock lock(mutex_);
    if (!ended_[place]) {
      const auto name = absl::StatusCodeToString(static_cast<absl::StatusCode>(place));
      ended_[place] = metrics_.GetHistogram(metrics::kGrpcServerCallDuration, {method_, name});
    }
    return *ended_[place];
  }

  metrics::Metrics& metrics_;
  const std::string method_;
  const metrics::Counter started_;
  base::Mutex mutex_;
  std::array<std::optional<metrics::Histogram>, kCodes> ended_ ABSL_GUARDED_BY(mutex_);
};

class CallMetrics final : public grpc::experimental::Interceptor {
 public:
  CallMetrics(MethodSeries& series, base::Clock& clock)
      : series_(series), clock_(clock), begin_(clock.Now()) {
    series_.Start();
  }
  // A call that ended without a status was cut off.
  ~CallMetrics() override {
    if (!ended_) End(grpc::StatusCode::CANCELLED);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      End(batch->GetSendStatus().error_code());
    }
    batch->Proceed();
  }

 private:
  void End(grpc::StatusCode code) {
    ended_ = true;
    series_.End(code, clock_.Now() - begin_);
  }

  MethodSeries& series_;
  base::Clock& clock_;
  const absl::Time begin_;
  bool ended_ = false;
};

class CallMetricsFactory final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallMetricsFactory(metrics::Metrics& metrics, base::Clock& clock,
                     const std::vector<std::string>& service_names)
      : clock_(clock), other_(metrics, kOther) {
    for (const std::string& name : service_names) {
      const auto* service =
          google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
      for (int i = 0; service != nullptr && i < service->method_count(); ++i) {
        const std::string method = absl::StrCat(name, "/", service->method(i)->name());
        series_.emplace("/" + method, std::make_unique<MethodSeries>(metrics, method));
      }
    }
  }

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const auto found = series_.find(absl::string_view(info->method()));
    return new CallMetrics(found == series_.end() ? other_ : *found->second, clock_);
  }

 private:
  base::Clock& clock_;
  MethodSeries other_;
  absl::flat_hash_map<std::string, std::unique_ptr<MethodSeries>> series_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMetricsInterceptor(
    metrics::Metrics& metrics, base::Clock& clock, const std::vector<std::string>& service_names) {
  return std::make_unique<CallMetricsFactory>(metrics, clock, service_names);
}

}  // namespace tessera::rpc
