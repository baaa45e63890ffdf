#include "tools/report/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::tools {
namespace {

double Percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(at));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

}  // namespace

Distribution Describe(std::vector<double> values) {
  Distribution d;
  if (values.empty()) return d;
  std::sort(values.begin(), values.end());
  d.count = static_cast<int>(values.size());
  d.mean = std::accumulate(values.begin(), values.end(), 0.0) / d.count;
  d.median = Percentile(values, 0.5);
  d.p90 = Percentile(values, 0.9);
  d.p99 = Percentile(values, 0.99);
  d.max = values.back();
  return d;
}

double HarmonicMean(const std::vector<double>& rates) {
  double times = 0;
  for (const double rate : rates) times += 1 / rate;
  return static_cast<double>(rates.size()) / times;
}

}  // namespace tessera::tools
