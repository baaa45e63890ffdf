#pragma once

#include <vector>

namespace tessera::tools {

// Of a set of values; all 0 when there are none.
struct Distribution {
  double mean = 0;
  double median = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
  int count = 0;
};

// Percentiles lie between neighbours linearly, as numpy's do.
Distribution Describe(std::vector<double> values);

// The rate of all of them together, where each is the rate of an equal amount of work.
// REQUIRES: rates is not empty; each is above 0.
double HarmonicMean(const std::vector<double>& rates);

}  // namespace tessera::tools
