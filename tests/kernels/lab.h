#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/compute_pool.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"

// A backend on a table: puts numbers in, runs ops, takes numbers out. Buffers live as long as it.
namespace tessera::kernels {

using Floats = std::vector<float>;

// 2^-24: the largest relative error of one rounding to f32.
inline constexpr double kUnitRoundoff = 0x1p-24;

class Lab {
 public:
  // "reference", "cpu" or "deferred" (the reference behind a deferred backend).
  explicit Lab(const std::string& name, int threads = 2);

  Backend& backend() { return *backend_; }

  // `values` [rows, cols] in a view with `pad` NaNs on both sides of every row.
  DeviceView Put(const Floats& values, int64_t rows, int64_t cols, int64_t pad = 0);
  // A view full of NaN.
  DeviceView Out(int64_t rows, int64_t cols, int64_t pad = 0);
  // Synchronizes. Also checks that the padding that Put or Out left around the view is still NaN.
  Floats Get(const DeviceView& view);

  // [n, k] in `dtype`, read from an address that is not aligned.
  const DeviceMatrix* Matrix(const Floats& values, int64_t n, int64_t k, DType dtype = DType::kF32);
  const DeviceVector* Vector(const Floats& values, DType dtype = DType::kF32);
  const KvCache* Cache(const KvCacheSpec& spec);

  // Ops read numbers at Synchronize: these live as long as the lab.
  absl::Span<const int32_t> Keep(std::vector<int32_t> numbers);
  absl::Span<const float> KeepFloats(Floats numbers);

 private:
  base::ComputePool pool_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  std::vector<std::unique_ptr<DeviceVector>> vectors_;
  std::vector<std::unique_ptr<KvCache>> caches_;
  std::vector<std::unique_ptr<std::vector<int32_t>>> ints_;
  std::vector<std::unique_ptr<Floats>> floats_;
};

// What Sample answers for rows of `logits` [rows, vocab] below `limit` (0: vocab).
std::vector<Sampled> RunSample(Lab& lab, const Floats& logits, int64_t vocab,
                               const std::vector<SamplingRow>& rows, int32_t limit = 0);

// Normal numbers, the same for the same seed.
Floats Random(size_t count, uint32_t seed, float scale = 1.0f);

// `values` after rounding to `dtype`.
Floats Rounded(const Floats& values, DType dtype);

// `values` as bytes of `dtype` at an odd address inside `storage`.
TensorView Unaligned(const Floats& values, Shape shape, DType dtype,
                     std::vector<std::byte>& storage);

// Fails where |actual - expected| > bound (one per element, or one for all).
void ExpectWithin(const Floats& actual, const Floats& expected, const std::vector<double>& bound,
                  const std::string& what);
// Fails unless the bits are equal.
void ExpectSameBits(const Floats& actual, const Floats& expected, const std::string& what);

inline std::vector<std::string> AllBackends() { return {"reference", "cpu", "deferred"}; }

}  // namespace tessera::kernels
