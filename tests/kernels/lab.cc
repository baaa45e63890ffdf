#include "tests/kernels/lab.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/base/half.h"
#include "kernels/create/create.h"
#include "tests/support/deferred_backend.h"

namespace tessera::kernels {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TensorView ViewOf(const Floats& values, Shape shape) {
  return {DType::kF32, shape, reinterpret_cast<const std::byte*>(values.data())};
}

}  // namespace

Lab::Lab(const std::string& name, int threads) : pool_(threads) {
  backend_ = *CreateBackend(name == "deferred" ? "reference" : name, pool_);
  if (name == "deferred") backend_ = testing::MakeDeferredBackend(std::move(backend_));
}

DeviceView Lab::Put(const Floats& values, int64_t rows, int64_t cols, int64_t pad) {
  const DeviceView view = Out(rows, cols, pad);
  floats_.push_back(std::make_unique<Floats>(values));
  backend_->Upload(ViewOf(*floats_.back(), {rows, cols}), view);
  return view;
}

DeviceView Lab::Out(int64_t rows, int64_t cols, int64_t pad) {
  const int64_t stride = cols + 2 * pad;
  buffers_.push_back(std::make_unique<DeviceBuffer>(*backend_->Allocate(rows * stride)));
  const DeviceView whole = View(*buffers_.back(), rows, stride);
  floats_.push_back(std::make_unique<Floats>(rows * stride, kNan));
  backend_->Upload(ViewOf(*floats_.back(), {rows, stride}), whole);
  return whole.Cols(pad, cols);
}

Floats Lab::Get(const DeviceView& view) {
  Floats out(static_cast<size_t>(view.rows * view.cols));
  backend_->Download(view, absl::MakeSpan(out));
  const int64_t pad = (view.stride - view.cols) / 2;
  Floats around(static_cast<size_t>(view.rows * view.stride));
  DeviceView whole = view;
  whole.offset -= static_cast<size_t>(pad);
  whole.cols = view.stride;
  const bool padded = pad > 0 && static_cast<int64_t>(view.offset) == pad;
  if (padded) backend_->Download(whole, absl::MakeSpan(around));
  EXPECT_TRUE(backend_->Synchronize().ok());
  for (int64_t i = 0; padded && i < view.rows; ++i) {
    for (int64_t j = 0; j < pad; ++j) {
      EXPECT_TRUE(std::isnan(around[i * view.stride + j])) << "written before row " << i;
      EXPECT_TRUE(std::isnan(around[(i + 1) * view.stride - 1 - j])) << "written after row " << i;
    }
  }
  return out;
}

const DeviceMatrix* Lab::Matrix(const Floats& values, int64_t n, int64_t k, DType dtype) {
  std::vector<std::byte> storage;
  matrices_.push_back(std::make_unique<DeviceMatrix>(
      *backend_->LoadMatrix(Unaligned(values, {n, k}, dtype, storage))));
  return matrices_.back().get();
}

const DeviceVector* Lab::Vector(const Floats& values, DType dtype) {
  std::vector<std::byte> storage;
  const Shape shape = {static_cast<int64_t>(values.size())};
  vectors_.push_back(std::make_unique<DeviceVector>(
      *backend_->LoadVector(Unaligned(values, shape, dtype, storage))));
  return vectors_.back().get();
}

const KvCache* Lab::Cache(const KvCacheSpec& spec) {
  caches_.push_back(std::make_unique<KvCache>(*backend_->MakeKvCache(spec)));
  return caches_.back().get();
}

absl::Span<const int32_t> Lab::Keep(std::vector<int32_t> numbers) {
  ints_.push_back(std::make_unique<std::vector<int32_t>>(std::move(numbers)));
  return *ints_.back();
}

absl::Span<const float> Lab::KeepFloats(Floats numbers) {
  floats_.push_back(std::make_unique<Floats>(std::move(numbers)));
  return *floats_.back();
}

std::vector<Sampled> RunSample(Lab& lab, const Floats& logits, int64_t vocab,
                               const std::vector<SamplingRow>& rows, int32_t limit) {
  std::vector<Sampled> out(rows.size());
  SampleParams params;
  params.logits = lab.Put(logits, static_cast<int64_t>(rows.size()), vocab, 3);
  params.id_limit = limit == 0 ? static_cast<int32_t>(vocab) : limit;
  params.rows = rows;
  params.out = absl::MakeSpan(out);
  lab.backend().Sample(params);
  EXPECT_TRUE(lab.backend().Synchronize().ok());
  return out;
}

Floats Random(size_t count, uint32_t seed, float scale) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats out(count);
  for (float& x : out) x = normal(bits);
  return out;
}

Floats Rounded(const Floats& values, DType dtype) {
  Floats out = values;
  for (float& x : out) {
    if (dtype == DType::kF16) x = base::HalfToFloat(base::FloatToHalf(x));
    if (dtype == DType::kBF16) x = base::Bf16ToFloat(base::FloatToBf16(x));
  }
  return out;
}

TensorView Unaligned(const Floats& values, Shape shape, DType dtype,
                     std::vector<std::byte>& storage) {
  const size_t size = SizeOf(dtype);
  storage.resize(values.size() * size + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits =
        dtype == DType::kF16 ? base::FloatToHalf(values[i]) : base::FloatToBf16(values[i]);
    const void* from = dtype == DType::kF32 ? static_cast<const void*>(&values[i]) : &bits;
    std::memcpy(storage.data() + 1 + i * size, from, size);
  }
  return {dtype, shape, storage.data() + 1};
}

void ExpectWithin(const Floats& actual, const Floats& expected, const std::vector<double>& bound,
                  const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  int failures = 0;
  for (size_t i = 0; i < actual.size() && failures < 5; ++i) {
    const double limit = bound.size() == 1 ? bound[0] : bound[i];
    const double difference = std::abs(double{actual[i]} - double{expected[i]});
    if (difference <= limit) continue;  // false for NaN
    ADD_FAILURE() << what << ": element " << i << " is " << actual[i] << ", expected "
                  << expected[i] << ", off by " << difference << ", allowed " << limit;
    ++failures;
  }
}

void ExpectSameBits(const Floats& actual, const Floats& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    if (std::memcmp(&actual[i], &expected[i], sizeof(float)) == 0) continue;
    ADD_FAILURE() << what << ": element " << i << " is " << actual[i] << ", not " << expected[i];
    return;
  }
}

}  // namespace tessera::kernels
