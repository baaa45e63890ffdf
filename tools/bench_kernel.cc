#include "tools/bench_kernel.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "kernels/cpu/rates.h"
#include "kernels/create/create.h"
#include "tools/report/distribution.h"

namespace tessera::tools {
namespace {

using kernels::Activation;
using kernels::Backend;
using kernels::DeviceBuffer;
using kernels::DeviceMatrix;
using kernels::DeviceVector;
using kernels::DeviceView;
using kernels::MatMulOut;
using kernels::View;

// Mean and standard deviation.
struct Measured {
  double mean = 0, deviation = 0;
};
Measured Summarize(const std::vector<double>& values) {
  Measured m;
  for (double v : values) m.mean += v / static_cast<double>(values.size());
  for (double v : values) m.deviation += (v - m.mean) * (v - m.mean);
  if (values.size() > 1) m.deviation /= static_cast<double>(values.size() - 1);
  m.deviation = std::sqrt(m.deviation);
  return m;
}

// Weights of random f16 numbers, and a count of their elements.
class RandomWeights {
 public:
  explicit RandomWeights(Backend& backend) : backend_(backend), bits_(kLargest) {
    uint64_t state = 0x9E3779B97F4A7C15;
    for (uint16_t& bits : bits_) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      bits = static_cast<uint16_t>(0x2400 | (state & 0x83FF));  // +-[2^-6, 2^-5)
    }
  }

  absl::StatusOr<DeviceMatrix> Matrix(int64_t n, int64_t k) {
    elements_ += n * k;
    return backend_.LoadMatrix(Bits({n, k}));
  }
  absl::StatusOr<DeviceVector> Vector(int64_t n) { return backend_.LoadVector(Bits({n})); }
  int64_t elements() const { return elements_; }  // of matrices

 private:
  static constexpr size_t kLargest = size_t{49152} * 576;
  TensorView Bits(Shape shape) const {
    return {DType::kF16, std::move(shape), reinterpret_cast<const std::byte*>(bits_.data())};
  }

  Backend& backend_;
  std::vector<uint16_t> bits_;
  int64_t elements_ = 0;
};

// A Llama decoder of 135M parameters: 30 layers, head and embedding table are one matrix.
class Llama {
 public:
  static constexpr int kLayers = 30, kHeads = 9, kKvHeads = 3, kHeadDim = 64, kBlock = 16;
  static constexpr int64_t kWidth = 576, kKvWidth = 192, kHidden = 1536, kVocab = 49152;
  static constexpr int64_t kMaxTokens = 512, kMaxSequences = 8, kTableWidth = kMaxTokens / kBlock;

  explicit Llama(Backend& backend) : backend_(backend) {}

  absl::Status Load() {
    RandomWeights weights(backend_);
    for (Layer& layer : layers_) {
      ASSIGN_OR_RETURN(layer.norm, weights.Vector(kWidth));
      ASSIGN_OR_RETURN(layer.q, weights.Matrix(kWidth, kWidth));
      ASSIGN_OR_RETURN(layer.k, weights.Matrix(kKvWidth, kWidth));
      ASSIGN_OR_RETURN(layer.v, weights.Matrix(kKvWidth, kWidth));
      ASSIGN_OR_RETURN(layer.o, weights.Matrix(kWidth, kWidth));
      ASSIGN_OR_RETURN(layer.gate, weights.Matrix(kHidden, kWidth));
      ASSIGN_OR_RETURN(layer.up, weights.Matrix(kHidden, kWidth));
      ASSIGN_OR_RETURN(layer.down, weights.Matrix(kWidth, kHidden));
    }
    layer_elements_ = weights.elements();
    ASSIGN_OR_RETURN(norm_, weights.Vector(kWidth));
    ASSIGN_OR_RETURN(table_, weights.Matrix(kVocab, kWidth));
    kernels::KvCacheSpec spec{kLayers, kKvHeads, kHeadDim, kMaxSequences * kTableWidth, kBlock};
    ASSIGN_OR_RETURN(cache_, backend_.MakeKvCache(spec));
    for (auto& [buffer, cols] : Buffers()) {
      ASSIGN_OR_RETURN(*buffer, backend_.Allocate(kMaxTokens * cols));
    }
    ASSIGN_OR_RETURN(logits_, backend_.Allocate(kMaxSequences * kVocab));
    for (int i = 0; i < kHeadDim / 2; ++i) {
      frequency_[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / kHeadDim));
    }
    for (int64_t i = 0; i < kMaxSequences * kTableWidth; ++i) {
      block_table_.push_back(static_cast<int32_t>(i));
    }
    return absl::OkStatus();
  }

  // One step: `count` new tokens for each of `sequences`, whose first lies at `position`.
  absl::Status Step(int sequences, int count, int position) {
    Plan(sequences, count, position);
    const int64_t tokens = int64_t{sequences} * count;
    auto rows = [&](const DeviceBuffer& b, int64_t cols) { return View(b, tokens, cols); };
    const DeviceView x = rows(x_, kWidth), h = rows(h_, kWidth), q = rows(q_, kWidth);
    const DeviceView k = rows(k_, kKvWidth), v = rows(v_, kKvWidth), gate = rows(gate_, kHidden);
    const DeviceView up = rows(up_, kHidden), cos = rows(cos_, kHeadDim / 2);
    const DeviceView sin = rows(sin_, kHeadDim / 2);
    backend_.EmbedTokens(table_, ids_, x);
    backend_.RotaryAngles({frequency_, {}, {positions_, {}, {}}, {}, 1.0f, cos, sin});
    for (int l = 0; l < kLayers; ++l) {
      const Layer& w = layers_[l];
      backend_.RmsNorm(x, w.norm, 1e-5f, h);
      const MatMulOut qkv[] = {{&w.q, nullptr, q}, {&w.k, nullptr, k}, {&w.v, nullptr, v}};
      backend_.MatMul({h, qkv});
      backend_.RotaryKvWrite({q, k, v, cos, sin, &cache_, l, slots_});
      backend_.PagedAttention(
          {q, h, &cache_, l, kHeads, 0.125f, query_begin_, context_, block_table_, kTableWidth});
      const MatMulOut o[] = {{&w.o, nullptr, x}};
      backend_.MatMul({h, o, Activation::kNone, true});
      backend_.RmsNorm(x, w.norm, 1e-5f, h);
      const MatMulOut gates[] = {{&w.gate, nullptr, gate}, {&w.up, nullptr, up}};
      backend_.MatMul({h, gates});
      backend_.GatedActivation(gate, up, Activation::kSilu, gate);
      const MatMulOut down[] = {{&w.down, nullptr, x}};
      backend_.MatMul({gate, down, Activation::kNone, true});
    }
    const DeviceView last = View(h_, sequences, kWidth), logits = View(logits_, sequences, kVocab);
    backend_.CopyRows(x, last_, last, numbers_);
    backend_.RmsNorm(last, norm_, 1e-5f, last);
    const MatMulOut head[] = {{&table_, nullptr, logits}};
    backend_.MatMul({last, head});
    backend_.Sample({logits, kVocab, sampling_, absl::MakeSpan(sampled_)});
    return backend_.Synchronize();
  }

  // Operations of a step; attention counted over the keys that are seen.
  double Flops(int sequences, int count, int position) const {
    const double keys = count * (position + (count + 1) / 2.0);
    return 2.0 * sequences *
           (count * static_cast<double>(layer_elements_) + static_cast<double>(kVocab * kWidth) +
            2.0 * kLayers * keys * kWidth);
  }
  // Bytes that a step must read: weights once, keys and values of every sequence.
  double Bytes(int sequences, int position) const {
    return 2.0 * (static_cast<double>(layer_elements_ + kVocab * kWidth) +
                  2.0 * kLayers * sequences * (position + 1.0) * kKvWidth);
  }
  double Parameters() const { return static_cast<double>(layer_elements_ + kVocab * kWidth); }

 private:
  struct Layer {
    DeviceVector norm;
    DeviceMatrix q, k, v, o, gate, up, down;
  };

  std::vector<std::pair<DeviceBuffer*, int64_t>> Buffers() {
    return {{&x_, kWidth},     {&h_, kWidth},     {&q_, kWidth},
            {&k_, kKvWidth},   {&v_, kKvWidth},   {&up_, kHidden},
            {&gate_, kHidden}, {&cos_, kHeadDim}, {&sin_, kHeadDim}};
  }

  void Plan(int sequences, int count, int position) {
    ids_.clear(), positions_.clear(), slots_.clear(), context_.clear(), last_.clear();
    numbers_.clear();
    query_begin_.assign(1, 0);
    for (int s = 0; s < sequences; ++s) {
      for (int t = 0; t < count; ++t) {
        ids_.push_back((s * 977 + (position + t) * 131) % kVocab);
        positions_.push_back(position + t);
        slots_.push_back(static_cast<int32_t>(s * kMaxTokens) + position + t);
      }
      query_begin_.push_back(static_cast<int32_t>(ids_.size()));
      context_.push_back(position + count);
      last_.push_back(query_begin_.back() - 1);
      numbers_.push_back(s);
    }
    sampling_.assign(sequences, {});
    sampled_.resize(sequences);
  }

  Backend& backend_;
  Layer layers_[kLayers];
  DeviceVector norm_;
  DeviceMatrix table_;
  kernels::KvCache cache_;
  DeviceBuffer x_, h_, q_, k_, v_, gate_, up_, cos_, sin_, logits_;
  int64_t layer_elements_ = 0;
  float frequency_[kHeadDim / 2];
  std::vector<int32_t> ids_, positions_, slots_, query_begin_, context_, block_table_, last_,
      numbers_;
  std::vector<kernels::SamplingRow> sampling_;
  std::vector<kernels::Sampled> sampled_;
};

// A CLIP tower: 6 layers 192 wide over 256 patches of 14 x 14 and a class row.
class Tower {
 public:
  static constexpr int kLayers = 6, kHeads = 3;
  static constexpr int64_t kRows = 257, kWidth = 192, kHidden = 768, kPatch = 3 * 14 * 14;

  explicit Tower(Backend& backend) : backend_(backend) {}

  absl::Status Load() {
    RandomWeights weights(backend_);
    for (Layer& layer : layers_) {
      for (DeviceMatrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.o}) {
        ASSIGN_OR_RETURN(*matrix, weights.Matrix(kWidth, kWidth));
      }
      ASSIGN_OR_RETURN(layer.up, weights.Matrix(kHidden, kWidth));
      ASSIGN_OR_RETURN(layer.down, weights.Matrix(kWidth, kHidden));
      ASSIGN_OR_RETURN(layer.wide, weights.Vector(kHidden));
      ASSIGN_OR_RETURN(layer.narrow, weights.Vector(kWidth));
    }
    layer_elements_ = weights.elements();
    ASSIGN_OR_RETURN(patch_, weights.Matrix(kWidth, kPatch));
    for (DeviceBuffer* buffer : {&pixels_, &x_, &h_, &q_, &k_, &v_, &up_}) {
      ASSIGN_OR_RETURN(*buffer, backend_.Allocate(kRows * kHidden));
    }
    return absl::OkStatus();
  }

  absl::Status Encode() {
    auto rows = [&](const DeviceBuffer& b, int64_t cols) { return View(b, kRows, cols); };
    const DeviceView x = rows(x_, kWidth), h = rows(h_, kWidth), q = rows(q_, kWidth);
    const DeviceView k = rows(k_, kWidth), v = rows(v_, kWidth), up = rows(up_, kHidden);
    const MatMulOut patch[] = {{&patch_, nullptr, x.Rows(1, kRows - 1)}};
    backend_.MatMul({rows(pixels_, kPatch).Rows(1, kRows - 1), patch});
    for (const Layer& w : layers_) {
      backend_.LayerNorm(x, w.narrow, w.narrow, 1e-5f, h);
      const MatMulOut qkv[] = {{&w.q, &w.narrow, q}, {&w.k, &w.narrow, k}, {&w.v, &w.narrow, v}};
      backend_.MatMul({h, qkv});
      backend_.PackedAttention({q, k, v, h, kHeads, 0.125f, segments_, segments_});
      const MatMulOut o[] = {{&w.o, &w.narrow, x}};
      backend_.MatMul({h, o, Activation::kNone, true});
      backend_.LayerNorm(x, w.narrow, w.narrow, 1e-5f, h);
      const MatMulOut wide[] = {{&w.up, &w.wide, up}};
      backend_.MatMul({h, wide, Activation::kQuickGelu});
      const MatMulOut down[] = {{&w.down, &w.narrow, x}};
      backend_.MatMul({up, down, Activation::kNone, true});
    }
    return backend_.Synchronize();
  }

  double Flops() const {
    return 2.0 * kRows *
           static_cast<double>(layer_elements_ + kWidth * kPatch + 2 * kLayers * kRows * kWidth);
  }

 private:
  struct Layer {
    DeviceMatrix q, k, v, o, up, down;
    DeviceVector wide, narrow;
  };
  Backend& backend_;
  Layer layers_[kLayers];
  DeviceMatrix patch_;
  DeviceBuffer pixels_, x_, h_, q_, k_, v_, up_;
  int64_t layer_elements_ = 0;
  const std::vector<int32_t> segments_ = {0, static_cast<int32_t>(kRows)};
};

// One row of the table: `units` (tokens or pictures) done by all parts together.
struct Test {
  std::string model, name, unit;
  double units = 0, flops = 0, bytes = 0;  // bytes 0: bound by arithmetic
  int parts = 1;
  std::function<absl::Status(int part)> run = nullptr;
};

// Every repetition of one test: its rate, and what the machine did meanwhile, measured before each
// part (what else runs on it slows both alike, and changes within a second).
struct Row {
  std::vector<double> rates, flops, bytes;
};

absl::StatusOr<Row> Time(const Test& test, int repetitions, kernels::cpu::Rates& machine) {
  RETURN_IF_ERROR(test.run(0));  // warm
  Row row;
  for (int i = 0; i < repetitions; ++i) {
    row.flops.push_back(machine.FlopsPerSecond());
    std::vector<double> bytes;
    std::chrono::duration<double> elapsed{0};
    for (int part = 0; part < test.parts; ++part) {
      bytes.push_back(machine.BytesPerSecond());
      const auto start = std::chrono::steady_clock::now();
      RETURN_IF_ERROR(test.run(part));
      elapsed += std::chrono::steady_clock::now() - start;
    }
    row.bytes.push_back(HarmonicMean(bytes));
    row.rates.push_back(test.units / elapsed.count());
  }
  return row;
}

std::vector<Test> Tests(Llama& llama, Tower& tower) {
  auto generate = [&llama](int sequences) {
    Test test{absl::StrFormat("llama %.0fM F16", llama.Parameters() / 1e6),
              sequences == 1 ? "tg128" : absl::StrCat("tg128 x", sequences), "t/s"};
    test.units = 128.0 * sequences;
    for (int t = 0; t < 128; ++t) {
      test.flops += llama.Flops(sequences, 1, t);
      test.bytes += llama.Bytes(sequences, t);
    }
    test.parts = 32;
    test.run = [&llama, sequences](int part) {
      for (int t = 4 * part; t < 4 * part + 4; ++t) RETURN_IF_ERROR(llama.Step(sequences, 1, t));
      return absl::OkStatus();
    };
    return test;
  };
  Test prefill = generate(1);
  prefill.name = "pp512";
  prefill.units = 512;
  prefill.flops = llama.Flops(1, 512, 0);
  prefill.bytes = 0;
  prefill.parts = 1;
  prefill.run = [&llama](int) { return llama.Step(1, 512, 0); };
  Test encode{"clip 6x192 F16", "encode", "img/s"};
  encode.units = 16;  // long enough to time
  encode.flops = encode.units * tower.Flops();
  encode.run = [&tower](int) {
    for (int i = 0; i < 16; ++i) RETURN_IF_ERROR(tower.Encode());
    return absl::OkStatus();
  };
  return {prefill, generate(1), generate(8), encode};
}

void PrintRow(const Test& test, const Row& row, std::ostream& out) {
  const Measured rate = Summarize(row.rates);
  const double flops = rate.mean / test.units * test.flops;
  const double bytes = rate.mean / test.units * test.bytes;
  std::string traffic = absl::StrFormat("%7s | %5s", "", "");
  if (test.bytes > 0) {
    traffic =
        absl::StrFormat("%7.1f | %4.0f%%", bytes / 1e9, 100 * bytes / Summarize(row.bytes).mean);
  }
  out << absl::StrFormat("| %-15s | %-8s | %9.2f ± %6.2f %-5s | %8.1f | %4.0f%% | %s |\n",
                         test.model, test.name, rate.mean, rate.deviation, test.unit, flops / 1e9,
                         100 * flops / Summarize(row.flops).mean, traffic);
}

void PrintTable(const std::string& backend, const std::vector<Test>& tests,
                const std::vector<Row>& rows, std::ostream& out) {
  Row all;
  for (const Row& row : rows) {
    all.flops.insert(all.flops.end(), row.flops.begin(), row.flops.end());
    all.bytes.insert(all.bytes.end(), row.bytes.begin(), row.bytes.end());
  }
  const Measured flops = Summarize(all.flops), bytes = Summarize(all.bytes);
  out << absl::StrFormat(
      "%s\nmachine: %.1f ± %.1f GFLOP/s (fused f32 products in registers), %.1f ± %.1f GB/s "
      "(reading 1 GiB); shares are of what it did between the parts of each repetition\n\n",
      backend, flops.mean / 1e9, flops.deviation / 1e9, bytes.mean / 1e9, bytes.deviation / 1e9);
  out << "| model           | test     |                     rate | GFLOP/s  | share |    GB/s | "
         "share |\n"
         "| --------------- | -------- | -----------------------: | -------: | ----: | ------: | "
         "----: |\n";
  for (size_t i = 0; i < tests.size(); ++i) PrintRow(tests[i], rows[i], out);
}

}  // namespace

absl::Status RunKernelBench(const KernelBenchOptions& options, std::ostream& out) {
  if (options.threads < 0 || options.threads > 1024) {
    return base::BadField("threads", "BAD_OPTION", "threads must be from 0 to 1024");
  }
  if (options.repetitions < 1) {
    return base::BadField("repetitions", "BAD_OPTION", "repetitions must be 1 or more");
  }
  const int threads = options.threads == 0 ? base::ComputePool::AvailableCpus() : options.threads;
  base::ComputePool pool(threads);
  ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, kernels::CreateBackend(options.device, pool));
  auto llama = std::make_unique<Llama>(*backend);
  auto tower = std::make_unique<Tower>(*backend);
  RETURN_IF_ERROR(llama->Load());
  RETURN_IF_ERROR(tower->Load());
  ASSIGN_OR_RETURN(std::unique_ptr<kernels::cpu::Rates> machine, kernels::cpu::Rates::Create(pool));
  const std::vector<Test> tests = Tests(*llama, *tower);
  std::vector<Row> rows;
  for (const Test& test : tests) {
    ASSIGN_OR_RETURN(Row row, Time(test, options.repetitions, *machine));
    rows.push_back(std::move(row));
  }
  PrintTable(backend->name(), tests, rows, out);
  return absl::OkStatus();
}

}  // namespace tessera::tools
