#pragma once

#include <array>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

// The only door to prometheus-cpp. Names, labels and buckets are declared in names.h.
namespace tessera::metrics {

// What a series family is called and which labels its series carry besides model_name. Declared
// once, as constants of names.h.
struct Description {
  const char* name;
  const char* help;
  std::array<const char*, 4> labels = {};  // nullptr behind the last
};
struct CounterName : Description {};
struct GaugeName : Description {};
struct HistogramName : Description {
  absl::Span<const double> buckets;  // upper bounds, rising
};

// Handles to one series each: small values, copied freely, valid while their Metrics lives. Any
// thread; none of the calls allocates. Series start at 0.
class Counter {
 public:
  void Increment(double by = 1) const;  // by >= 0
  double value() const;

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter& series) : series_(&series) {}
  prometheus::Counter* series_;
};

class Gauge {
 public:
  void Set(double value) const;
  void Add(double by) const;  // negative: less
  double value() const;

 private:
  friend class Metrics;
  explicit Gauge(prometheus::Gauge& series) : series_(&series) {}
  prometheus::Gauge* series_;
};

class Histogram {
 public:
  void Observe(double value) const;  // in the unit that the name ends with

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram& series) : series_(&series) {}
  prometheus::Histogram* series_;
};

// One registry; a process has one, a test as many as it likes. Any thread.
class Metrics {
 public:
  using LabelValues = std::initializer_list<absl::string_view>;

  // `model_name` is a label of every series.
  explicit Metrics(absl::string_view model_name);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The series with these label values, created at 0 when it is new. Series whose values are known
  // beforehand are made at start, so that they are exported as 0. Allocates.
  // REQUIRES: one value per label of `name`, in their order.
  Counter GetCounter(const CounterName& name, LabelValues values = {});
  Gauge GetGauge(const GaugeName& name, LabelValues values = {});
  Histogram GetHistogram(const HistogramName& name, LabelValues values = {});

  // All series in Prometheus' text form; kContentType says which.
  std::string Text() const;

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

inline constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace tessera::metrics
