#include <cstdlib>
#include <iostream>

#include "tools/bench_kernel.h"

// `kernel_bench [repetitions]`: what `tessera bench kernel` prints, without the rest of the
// command.
int main(int argc, char** argv) {
  tessera::tools::KernelBenchOptions options;
  if (argc > 1) options.repetitions = std::atoi(argv[1]);
  const absl::Status status = tessera::tools::RunKernelBench(options, std::cout);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
