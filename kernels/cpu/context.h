#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "common/base/compute_pool.h"
#include "kernels/host/sampling.h"

namespace tessera::kernels::cpu {

// The instruction set that ops run on, such as "AVX3".
const char* TargetName();

// What the CPU's ops share: the pool, and scratch that only grows when a larger shape comes.
// Owner: the backend's thread; tasks of one op write disjoint parts.
struct Context {
  explicit Context(base::ComputePool& pool) : pool(pool) {}

  // At least `count` floats, not initialized, valid until the next call.
  float* Floats(int64_t count) {
    if (static_cast<int64_t>(floats.size()) < count) floats.resize(static_cast<size_t>(count));
    return floats.data();
  }
  int32_t* Ints(int64_t count) {
    if (static_cast<int64_t>(ints.size()) < count) ints.resize(static_cast<size_t>(count));
    return ints.data();
  }

  // Runs body(begin, end) over [0, rows), in pieces when there is work for several threads.
  // `cost` is the elements in a row.
  template <typename Body>
  void ForRows(int64_t rows, int64_t cost, Body body) {
    constexpr int64_t kWorthATask = 16384;
    int64_t pieces = rows * cost / kWorthATask;
    pieces = std::min({pieces, rows, int64_t{4} * pool.threads()});
    if (pieces <= 1 || pool.threads() == 1) {
      body(int64_t{0}, rows);
      return;
    }
    pool.Run(static_cast<int>(pieces),
             [&](int task) { body(rows * task / pieces, rows * (task + 1) / pieces); });
  }

  base::ComputePool& pool;
  std::vector<float> floats;
  std::vector<int32_t> ints;
  std::vector<Candidate> candidates;
};

}  // namespace tessera::kernels::cpu
