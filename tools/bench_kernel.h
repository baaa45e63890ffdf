#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"

namespace tessera::tools {

struct KernelBenchOptions {
  std::string device = "cpu";  // as CreateBackend takes it
  int threads = 0;             // 0: what the machine grants
  int repetitions = 5;         // of every row
};

// Prints, as llama-bench does, tokens per second of a Llama of 135M parameters in f16 (random
// weights; prefill of 512 tokens, generation of 128 tokens for 1 and 8 sequences) and pictures per
// second of a small CLIP tower, each through the backend's ops; beside them the arithmetic and the
// memory traffic they amount to, as a share of what the machine was measured to do in the same run.
// Takes about a minute and 2 GiB.
absl::Status RunKernelBench(const KernelBenchOptions& options, std::ostream& out);

}  // namespace tessera::tools
