#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace tessera::decode::jinja {

// What one template may cost. A template comes with a model, a message from a user: neither may
// take the process with it.
struct Limits {
  size_t max_source_bytes = size_t{1} << 20;
  int max_parse_depth = 150;             // nested brackets, operators and blocks
  int max_run_depth = 600;               // nested evaluations, macro calls included
  int max_value_depth = 60;              // lists in lists
  int64_t max_value_weight = 4'000'000;  // values in one list, counted through all levels
  int64_t max_steps = 20'000'000;        // evaluated nodes; 64 bytes of text count as one more
  size_t max_output_bytes = size_t{16} << 20;  // the result and every single string
  size_t max_total_bytes = size_t{256} << 20;  // all strings and lists made while rendering
  int64_t max_range = 100'000;                 // items of one range()
};

// Counts what a rendering uses. One per rendering, one thread.
class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits) {}

  const Limits& limits() const { return limits_; }
  absl::Status Steps(int64_t count = 1);
  // `bytes` more of text or list, `size` the length that the string has then.
  absl::Status Bytes(size_t bytes, size_t size = 0);
  absl::Status Enter();  // one level deeper; Leave() even after a failure
  void Leave() { --depth_; }

 private:
  const Limits limits_;
  int64_t steps_ = 0;
  size_t bytes_ = 0;
  int depth_ = 0;
};

}  // namespace tessera::decode::jinja
