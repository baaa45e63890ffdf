#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "kernels/create/create.h"
#include "tests/kernels/lab.h"

namespace {

std::atomic<int64_t> allocations{0};

void* Allocate(std::size_t bytes) {
  allocations.fetch_add(1);
  void* at = std::malloc(bytes == 0 ? 1 : bytes);
  if (at == nullptr) std::abort();
  return at;
}

}  // namespace

void* operator new(std::size_t bytes) { return Allocate(bytes); }
void* operator new[](std::size_t bytes) { return Allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return Allocate(bytes); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }

namespace tessera::kernels {
namespace {

class MemoryTest : public ::testing::TestWithParam<std::string> {};

TEST_P(MemoryTest, BuffersAndCachesAreZeroed) {
  Lab lab(GetParam());
  for (const int64_t elements : {int64_t{1}, int64_t{100}, int64_t{1} << 19}) {
    const DeviceBuffer buffer = *lab.backend().Allocate(elements);
    const Floats values = lab.Get(View(buffer, 1, elements));
    for (const float x : values) ASSERT_EQ(x, 0);
  }
}

TEST_P(MemoryTest, CountsWhatIsInUseAndGivesItBack) {
  Lab lab(GetParam());
  Backend& backend = lab.backend();
  const KvCacheSpec spec{.layers = 2, .kv_heads = 3, .head_dim = 16, .blocks = 5, .block_size = 16};
  {
    const DeviceBuffer buffer = *backend.Allocate(1000);
    const KvCache cache = *backend.MakeKvCache(spec);
    std::vector<std::byte> storage;
    const DeviceMatrix matrix =
        *backend.LoadMatrix(Unaligned(Random(64 * 10, 1), {64, 10}, DType::kF16, storage));
    EXPECT_EQ(backend.memory().buffers, 4000u);
    EXPECT_EQ(backend.memory().kv_cache, 5 * backend.KvBytesPerBlock(spec));
    EXPECT_EQ(backend.KvBytesPerBlock(spec), 2u * 2 * 3 * 16 * 16 * 2);
    EXPECT_EQ(backend.memory().weights, 64u * 10 * 2);
  }
  EXPECT_EQ(backend.memory().buffers, 0u);
  EXPECT_EQ(backend.memory().kv_cache, 0u);
  EXPECT_EQ(backend.memory().weights, 0u);
}

TEST_P(MemoryTest, MoreThanThereIsIsResourceExhaustedWithNumbers) {
  Lab lab(GetParam());
  const absl::Status buffer = lab.backend().Allocate(int64_t{1} << 50).status();
  EXPECT_EQ(buffer.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(buffer.message()).find("4503599627370496 bytes"), std::string::npos)
      << buffer;
  KvCacheSpec spec{.layers = 1 << 20, .kv_heads = 1 << 20, .head_dim = 128};
  spec.blocks = int64_t{1} << 40;
  EXPECT_EQ(lab.backend().MakeKvCache(spec).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(MemoryTest, WrongWeightsAndCachesAreInvalidArguments) {
  Lab lab(GetParam());
  const std::byte bytes[64] = {};
  for (const TensorView& view :
       {TensorView{DType::kI8, {2, 2}, bytes}, TensorView{DType::kF32, {4}, bytes},
        TensorView{DType::kF32, {0, 4}, bytes}, TensorView{DType::kF16, {2, 2, 1}, bytes}}) {
    EXPECT_EQ(lab.backend().LoadMatrix(view).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(lab.backend().LoadVector({DType::kF32, {2, 2}, bytes}).status().code(),
            absl::StatusCode::kInvalidArgument);
  KvCacheSpec spec{.layers = 1, .kv_heads = 1, .head_dim = 16, .blocks = 1};
  spec.dtype = DType::kBF16;
  EXPECT_EQ(lab.backend().MakeKvCache(spec).status().code(), absl::StatusCode::kInvalidArgument);
  spec.dtype = DType::kF16;
  spec.zero_point = true;
  EXPECT_EQ(lab.backend().MakeKvCache(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Kernels, MemoryTest, ::testing::ValuesIn(AllBackends()),
                         [](const auto& info) { return info.param; });

TEST(CreateBackendTest, AnUnknownDeviceIsRefusedWithWhatThereIs) {
  base::ComputePool pool(1);
  for (const char* device : {"cuda:0", "gpu", "", "CPU"}) {
    const absl::Status status = CreateBackend(device, pool).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("cpu, reference"), std::string::npos) << status;
  }
}

// Two rounds of every op over the same buffers; the second one is counted.
TEST(CpuBackendTest, AllocatesNothingOnceWarm) {
  Lab lab("cpu", 3);
  Backend& backend = lab.backend();
  const int64_t rows = 40, cols = 64;
  const DeviceView x = lab.Put(Random(rows * cols, 1), rows, cols), h = lab.Out(rows, cols);
  const DeviceView q = lab.Out(rows, cols), k = lab.Out(rows, cols), v = lab.Out(rows, cols);
  const DeviceView cos = lab.Out(rows, 8), sin = lab.Out(rows, 8);
  const DeviceMatrix* w = lab.Matrix(Random(cols * cols, 2), cols, cols, DType::kF16);
  const DeviceVector* norm = lab.Vector(Random(cols, 3));
  const KvCache* cache =
      lab.Cache({.layers = 1, .kv_heads = 4, .head_dim = 16, .blocks = 3, .block_size = 16});
  const KvCache* codes = lab.Cache({.layers = 1,
                                    .kv_heads = 4,
                                    .head_dim = 16,
                                    .blocks = 3,
                                    .dtype = DType::kI8,
                                    .zero_point = true});
  std::vector<int32_t> index(rows), table = {2, 0, 1}, begin = {0, 40}, context = {40};
  for (int64_t i = 0; i < rows; ++i) index[i] = static_cast<int32_t>(i);
  const Floats frequency = Random(8, 4);
  std::vector<SamplingRow> sampling(rows, {.temperature = 1, .top_k = 9, .top_p = 0.9f});
  const std::vector<SeenToken> seen = {{3, 1}, {60, 0}};
  const std::vector<LogitBias> bias = {{63, 2.0f}};
  for (int64_t i = 0; i < rows; i += 2) {
    sampling[i].temperature = static_cast<float>(i % 4);
    sampling[i].presence_penalty = 1;
    sampling[i].seen = seen;
    sampling[i].bias = bias;
  }
  std::vector<Sampled> sampled(rows);
  Floats host(rows * cols);
  auto round = [&] {
    backend.EmbedTokens(*w, index, x);
    backend.AddRows(x, x, index);
    backend.RmsNorm(x, *norm, 1e-5f, h);
    const MatMulOut qkv[] = {{w, norm, q}, {w, nullptr, k}, {w, nullptr, v}};
    backend.MatMul({h, qkv, Activation::kGelu});
    backend.RotaryAngles({frequency, {}, {index, {}, {}}, {}, 1.0f, cos, sin});
    backend.RotaryKvWrite({q, k, v, cos, sin, cache, 0, index});
    backend.PagedAttention({q, h, cache, 0, 4, 0.25f, begin, context, table, 3});
    backend.RotaryKvWrite({q, k, v, cos, sin, codes, 0, index});
    backend.PagedAttention({q, h, codes, 0, 4, 0.25f, begin, context, table, 3});
    backend.PackedAttention({q, k, v, h, 4, 0.25f, begin, begin});
    backend.GatedActivation(h, q, Activation::kSilu, h);
    backend.LayerNorm(h, *norm, *norm, 1e-5f, h);
    backend.CopyRows(h, index, x, index);
    backend.Sample({x, static_cast<int32_t>(cols), sampling, absl::MakeSpan(sampled)});
    backend.Download(x, absl::MakeSpan(host));
    return backend.Synchronize().ok();
  };
  ASSERT_TRUE(round());
  const int64_t before = allocations.load();
  const bool ok = round();
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_TRUE(ok);
}

TEST(DeferredBackendTest, NothingHappensBeforeSynchronize) {
  Lab lab("deferred");
  Floats source = {1, 2, 3}, target(3, 9.0f);
  const DeviceView x = lab.Out(1, 3);
  std::vector<Sampled> sampled(1);
  std::vector<LogitBias> bias = {{0, 100}};
  std::vector<SamplingRow> rows = {{.bias = bias}};
  lab.backend().Upload({DType::kF32, {1, 3}, reinterpret_cast<const std::byte*>(source.data())}, x);
  lab.backend().Download(x, absl::MakeSpan(target));
  lab.backend().Sample({x, 3, rows, absl::MakeSpan(sampled)});
  for (const float value : target) EXPECT_TRUE(std::isnan(value));
  EXPECT_NE(sampled[0].id, 1);
  EXPECT_TRUE(std::isnan(sampled[0].logprob));
  source[1] = 70;  // host memory is read at Synchronize
  bias[0] = {2, -1};
  ASSERT_TRUE(lab.backend().Synchronize().ok());
  EXPECT_EQ(target, (Floats{1, 70, 3}));
  EXPECT_EQ(sampled[0].id, 1);
}

}  // namespace
}  // namespace tessera::kernels
