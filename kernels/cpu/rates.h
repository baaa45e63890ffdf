#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "common/base/compute_pool.h"

// What the machine can do at most, for benchmarks to stand beside: all threads of the pool at once.
namespace tessera::kernels::cpu {

// Fused f32 products with sums (two operations each) done per second, in registers, with more
// chains per thread than an FMA's latency needs. Takes about `seconds`.
double MeasureFlopsPerSecond(base::ComputePool& pool, double seconds);

// Bytes read and summed per second, four streams per thread. `memory`: at least 1 GiB, so that no
// cache holds it.
double MeasureBytesPerSecond(base::ComputePool& pool, absl::Span<const std::byte> memory);

}  // namespace tessera::kernels::cpu
