#include "common/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <exception>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera::metrics {
namespace {

prometheus::Labels LabelsOf(const Description& name, Metrics::LabelValues values) {
  prometheus::Labels labels;
  size_t count = 0;
  for (absl::string_view value : values) {
    CHECK_LT(count, name.labels.size());
    CHECK(name.labels[count] != nullptr);
    labels.emplace(name.labels[count++], value);
  }
  CHECK(count == name.labels.size() || name.labels[count] == nullptr);
  return labels;
}

// prometheus-cpp throws on a name it does not like, or one used for two types: both are ours.
template <typename Make>
auto& OrDie(const Description& name, Make make) {
  try {
    return make();
  } catch (const std::exception& e) {
    base::CheckFailed(__FILE__, __LINE__, absl::StrCat(name.name, ": ", e.what()));
  }
}

}  // namespace

struct Metrics::State {
  prometheus::Registry registry;
  prometheus::Labels common;
};

Metrics::Metrics(absl::string_view model_name) : state_(std::make_unique<State>()) {
  state_->common.emplace("model_name", model_name);
}
Metrics::~Metrics() = default;

Counter Metrics::GetCounter(const CounterName& name, LabelValues values) {
  return Counter(OrDie(name, [&]() -> prometheus::Counter& {
    return prometheus::BuildCounter()
        .Name(name.name)
        .Help(name.help)
        .Labels(state_->common)
        .Register(state_->registry)
        .Add(LabelsOf(name, values));
  }));
}

Gauge Metrics::GetGauge(const GaugeName& name, LabelValues values) {
  return Gauge(OrDie(name, [&]() -> prometheus::Gauge& {
    return prometheus::BuildGauge()
        .Name(name.name)
        .Help(name.help)
        .Labels(state_->common)
        .Register(state_->registry)
        .Add(LabelsOf(name, values));
  }));
}

Histogram Metrics::GetHistogram(const HistogramName& name, LabelValues values) {
  return Histogram(OrDie(name, [&]() -> prometheus::Histogram& {
    return prometheus::BuildHistogram()
        .Name(name.name)
        .Help(name.help)
        .Labels(state_->common)
        .Register(state_->registry)
        .Add(LabelsOf(name, values),
             prometheus::Histogram::BucketBoundaries(name.buckets.begin(), name.buckets.end()));
  }));
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(state_->registry.Collect());
}

void Counter::Increment(double by) const { series_->Increment(by); }
double Counter::value() const { return series_->Value(); }
void Gauge::Set(double value) const { series_->Set(value); }
void Gauge::Add(double by) const { series_->Increment(by); }
double Gauge::value() const { return series_->Value(); }
void Histogram::Observe(double value) const { series_->Observe(value); }

}  // namespace tessera::metrics
