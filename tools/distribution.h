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

}  // namespace tessera::tools
