#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/base/compute_pool.h"
#include "kernels/create/create.h"

// `kernel_bench_kv [repetitions]`: attention of one decode step over keys and values of f16 and of
// int8, and what writing them takes. Each repetition times every dtype, one after another, so that
// what else the machine does slows all alike; ratios are medians of the ratios in a repetition.
namespace tessera::kernels {
namespace {

struct Shape {
  const char* name;
  int heads, kv_heads, head_dim, sequences, context;
};

struct Format {
  const char* name;
  DType dtype;
  bool zero_point;
};
constexpr Format kFormats[] = {
    {"f16", DType::kF16, false}, {"int8", DType::kI8, false}, {"int8 + zero", DType::kI8, true}};
constexpr int kLayers = 4;  // visited in turn, as a model does

double SecondsOf(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// A cache full of random keys and values, and a step over it.
class Step {
 public:
  Step(const Shape& shape, const Format& format, Backend& backend)
      : shape_(shape), backend_(backend) {
    spec_ = {kLayers, shape.kv_heads, shape.head_dim};
    width_ = (shape.context + spec_.block_size - 1) / spec_.block_size;
    spec_.blocks = width_ * shape.sequences;
    spec_.dtype = format.dtype;
    spec_.zero_point = format.zero_point;
    cache_ = *backend.MakeKvCache(spec_);
    const int64_t tokens = spec_.blocks * spec_.block_size, cols = shape.heads * shape.head_dim;
    q_ = *backend.Allocate(tokens * cols);
    out_ = *backend.Allocate(shape.sequences * cols);
    kv_ = *backend.Allocate(tokens * kv_cols());
    angles_ = *backend.Allocate(tokens * shape.head_dim);
    for (int64_t t = 0; t < tokens; ++t) slots_.push_back(static_cast<int32_t>(t));
    for (int64_t b = 0; b < spec_.blocks; ++b) table_.push_back(static_cast<int32_t>(b));
    for (int s = 0; s <= shape.sequences; ++s) query_begin_.push_back(s);
    context_.assign(shape.sequences, shape.context);
    Fill(kv_, tokens, kv_cols());
    Fill(q_, shape.sequences, cols);
    Write();
  }

  // Keys and values of all tokens, in every layer.
  void Write() {
    const auto tokens = static_cast<int64_t>(slots_.size());
    const DeviceView kv = View(kv_, tokens, kv_cols());
    const DeviceView angles = View(angles_, tokens, shape_.head_dim / 2);
    const DeviceView q = View(q_, tokens, shape_.head_dim);
    for (int l = 0; l < kLayers; ++l) {
      backend_.RotaryKvWrite({q, kv, kv, angles, angles, &cache_, l, slots_});
    }
  }
  void Attend() {
    const int64_t cols = shape_.heads * shape_.head_dim;
    const DeviceView q = View(q_, shape_.sequences, cols), out = View(out_, shape_.sequences, cols);
    const float scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
    for (int l = 0; l < kLayers; ++l) {
      backend_.PagedAttention(
          {q, out, &cache_, l, shape_.heads, scale, query_begin_, context_, table_, width_});
    }
  }
  double Bytes() const {
    return static_cast<double>(backend_.KvBytesPerBlock(spec_)) * static_cast<double>(spec_.blocks);
  }

 private:
  int64_t kv_cols() const { return int64_t{shape_.kv_heads} * shape_.head_dim; }

  void Fill(const DeviceBuffer& buffer, int64_t rows, int64_t cols) {
    std::vector<float> values(rows * cols);
    uint32_t state = 1;
    for (float& x : values) {
      state = state * 1664525 + 1013904223;
      x = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    backend_.Upload({DType::kF32, {rows, cols}, bytes}, View(buffer, rows, cols));
  }

  Shape shape_;
  Backend& backend_;
  KvCacheSpec spec_;
  KvCache cache_;
  DeviceBuffer q_, out_, kv_, angles_;
  std::vector<int32_t> slots_, table_, query_begin_, context_;
  int64_t width_ = 0;
};

void Run(const Shape& shape, int repetitions, Backend& backend) {
  std::vector<std::unique_ptr<Step>> steps;
  for (const Format& format : kFormats) {
    steps.push_back(std::make_unique<Step>(shape, format, backend));
  }
  std::vector<double> attend[3], write[3], attend_ratio[3], write_ratio[3];
  for (int i = 0; i < repetitions; ++i) {
    for (size_t f = 0; f < steps.size(); ++f) {
      attend[f].push_back(SecondsOf([&] { steps[f]->Attend(); }));
      attend_ratio[f].push_back(attend[0].back() / attend[f].back());
    }
    if (i % 4 != 0) continue;
    for (size_t f = 0; f < steps.size(); ++f) {
      write[f].push_back(SecondsOf([&] { steps[f]->Write(); }));
      write_ratio[f].push_back(write[0].back() / write[f].back());
    }
  }
  for (size_t f = 0; f < steps.size(); ++f) {
    const double seconds = Median(attend[f]);
    std::cout << absl::StreamFormat(
        "| %-17s | %7d | %-11s | %7.1f | %8.3f | %6.1f | %5.2f | %8.1f | %5.2f |\n", shape.name,
        shape.context, kFormats[f].name, steps[f]->Bytes() / 1e6, 1e3 * seconds / kLayers,
        steps[f]->Bytes() / seconds / 1e9, Median(attend_ratio[f]),
        1e9 * Median(write[f]) / (kLayers * shape.context * shape.sequences),
        Median(write_ratio[f]));
  }
}

}  // namespace
}  // namespace tessera::kernels

int main(int argc, char** argv) {
  using namespace tessera;
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 25;
  base::ComputePool pool(base::ComputePool::AvailableCpus());
  const auto backend = kernels::CreateBackend("cpu", pool);
  std::cout << (*backend)->name() << "; a step of attention over " << kernels::kLayers
            << " layers; speed-ups over f16\n\n"
               "| shape             | context | keys        |      MB | ms/layer |   GB/s | ratio |"
               " write ns | ratio |\n"
               "| ----------------- | ------: | ----------- | ------: | -------: | -----: | ----: |"
               " -------: | ----: |\n";
  for (const int context : {1024, 2048, 4096}) {
    kernels::Run({"9/3 x 64, 1 seq", 9, 3, 64, 1, context}, repetitions, **backend);
    kernels::Run({"9/3 x 64, 8 seqs", 9, 3, 64, 8, context}, repetitions, **backend);
    kernels::Run({"32/32 x 128, 1 seq", 32, 32, 128, 1, context}, repetitions, **backend);
    kernels::Run({"28/4 x 128, 4 seqs", 28, 4, 128, 4, context}, repetitions, **backend);
  }
  return 0;
}
