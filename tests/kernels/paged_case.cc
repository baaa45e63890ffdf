#include "tests/kernels/paged_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace tessera::kernels {
namespace {

constexpr int kLayer = 1;

Floats Slice(const Floats& values, int64_t begin, int64_t end, int64_t cols) {
  return {values.begin() + begin * cols, values.begin() + end * cols};
}

// A piece of the work: tokens [begin, end) of sequence `s`.
struct Piece {
  size_t s;
  int64_t begin, end;
};

class Runner {
 public:
  Runner(const PagedCase& c, Lab& lab) : c_(c), lab_(lab), input_(MakePagedInput(c)) {
    KvCacheSpec spec;
    spec.layers = 2;
    spec.kv_heads = c.kv_heads;
    spec.head_dim = c.head_dim;
    spec.block_size = c.block_size;
    spec.dtype = c.dtype;
    spec.zero_point = c.zero_point;
    int64_t first = 0;
    for (const PagedSequence& sequence : c.sequences) {
      first_token_.push_back(first);
      first += sequence.context;
      width_ = std::max(width_, (sequence.context + c.block_size - 1) / c.block_size);
    }
    spec.blocks = 2 + width_ * static_cast<int64_t>(c.sequences.size());
    spec_ = spec;
    cache_ = lab.Cache(spec);
  }

  void Poison() {
    const int64_t slots = spec_.blocks * spec_.block_size, kv_cols = c_.kv_heads * c_.head_dim;
    const Floats nans(slots * kv_cols, std::nanf(""));
    std::vector<int32_t> all(slots);
    std::iota(all.begin(), all.end(), 0);
    for (int layer = 0; layer < spec_.layers; ++layer) {
      RotaryKvParams params;
      params.q = lab_.Put(Floats(slots * c_.head_dim), slots, c_.head_dim);
      params.k = lab_.Put(nans, slots, kv_cols);
      params.v = lab_.Put(nans, slots, kv_cols);
      params.cos = lab_.Put(Floats(slots * c_.head_dim / 2, 1), slots, c_.head_dim / 2);
      params.sin = lab_.Put(Floats(slots * c_.head_dim / 2, 0), slots, c_.head_dim / 2);
      params.cache = cache_;
      params.layer = layer;
      params.slots = lab_.Keep(all);
      lab_.backend().RotaryKvWrite(params);
    }
  }

  // Writes the pieces' tokens and returns the view of their attention.
  DeviceView Run(const std::vector<Piece>& pieces) {
    const int64_t q_cols = c_.heads * c_.head_dim, kv_cols = c_.kv_heads * c_.head_dim;
    Floats q, k, v;
    std::vector<int32_t> positions, slots, begin = {0}, context;
    std::vector<int32_t> table(pieces.size() * width_, -1);
    for (size_t p = 0; p < pieces.size(); ++p) {
      const Piece& piece = pieces[p];
      const int64_t from = first_token_[piece.s] + piece.begin;
      const int64_t to = first_token_[piece.s] + piece.end;
      auto append = [&](Floats& all, const Floats& source, int64_t cols) {
        const Floats rows = Slice(source, from, to, cols);
        all.insert(all.end(), rows.begin(), rows.end());
      };
      append(q, input_.q, q_cols);
      append(k, input_.k, kv_cols);
      append(v, input_.v, kv_cols);
      for (int64_t t = piece.begin; t < piece.end; ++t) {
        positions.push_back(static_cast<int32_t>(t));
        slots.push_back(Block(piece.s, t / c_.block_size) * c_.block_size + t % c_.block_size);
      }
      for (int64_t b = 0; b * c_.block_size < piece.end; ++b) {
        table[p * width_ + b] = Block(piece.s, b);
      }
      begin.push_back(static_cast<int32_t>(positions.size()));
      context.push_back(static_cast<int32_t>(piece.end));
    }
    const auto tokens = static_cast<int64_t>(positions.size());
    RotaryKvParams write;
    write.q = lab_.Put(q, tokens, q_cols, 1);
    write.k = lab_.Put(k, tokens, kv_cols, 2);
    write.v = lab_.Put(v, tokens, kv_cols);
    Angles(positions, write);
    write.cache = cache_;
    write.layer = kLayer;
    write.slots = lab_.Keep(slots);
    lab_.backend().RotaryKvWrite(write);
    PagedAttentionParams params;
    params.q = write.q;
    params.out = lab_.Out(tokens, q_cols, 3);
    params.cache = cache_;
    params.layer = kLayer;
    params.heads = c_.heads;
    params.scale = c_.scale();
    params.query_begin = lab_.Keep(begin);
    params.context = lab_.Keep(context);
    params.block_table = lab_.Keep(table);
    params.table_width = width_;
    lab_.backend().PagedAttention(params);
    return params.out;
  }

 private:
  // Blocks of a sequence lie scattered, in descending order.
  int32_t Block(size_t s, int64_t index) const {
    const auto sequences = static_cast<int64_t>(c_.sequences.size());
    return static_cast<int32_t>(spec_.blocks - 1 - (index * sequences + static_cast<int64_t>(s)));
  }

  void Angles(const std::vector<int32_t>& positions, RotaryKvParams& write) {
    const auto tokens = static_cast<int64_t>(positions.size());
    const int64_t half = c_.head_dim / 2;
    Floats frequency(half, 0.0f);
    for (int64_t i = 0; c_.turn && i < half; ++i) {
      frequency[i] = std::pow(100.0f, -static_cast<float>(i) / static_cast<float>(half));
    }
    RotaryAnglesParams angles;
    angles.inverse_frequency = lab_.KeepFloats(frequency);
    angles.positions[0] = lab_.Keep(positions);
    angles.cos = write.cos = lab_.Out(tokens, half);
    angles.sin = write.sin = lab_.Out(tokens, half);
    lab_.backend().RotaryAngles(angles);
  }

  const PagedCase& c_;
  Lab& lab_;
  PagedInput input_;
  KvCacheSpec spec_;
  const KvCache* cache_ = nullptr;
  std::vector<int64_t> first_token_;
  int64_t width_ = 0;
};

}  // namespace

float PagedCase::scale() const { return 1 / std::sqrt(static_cast<float>(head_dim)); }

int64_t PagedCase::MaxContext() const {
  int64_t largest = 0;
  for (const PagedSequence& s : sequences) largest = std::max(largest, s.context);
  return largest;
}

std::string PagedCase::Name() const {
  std::string text =
      absl::StrCat(heads, "/", kv_heads, " heads of ", head_dim, ", blocks of ", block_size, ", ",
                   std::string(tessera::Name(dtype)), zero_point ? " with zeros:" : ":");
  for (const PagedSequence& s : sequences) absl::StrAppend(&text, " ", s.context, "/", s.queries);
  return text;
}

std::vector<PagedCase> PagedCases() {
  std::vector<PagedCase> cases;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kI8}) {
    cases.push_back({2, 2, 2, 1, dtype, {{1, 1}}});
    cases.push_back({6, 2, 16, 16, dtype, {{1, 1}, {16, 1}, {17, 17}, {15, 2}}});
    cases.push_back({9, 3, 64, 16, dtype, {{130, 1}, {70, 70}, {64, 3}}});
    cases.push_back({4, 4, 20, 8, dtype, {{33, 33}, {5, 1}}});
    cases.push_back({8, 1, 34, 5, dtype, {{100, 40}}});
    cases.push_back({2, 1, 128, 32, dtype, {{65, 1}, {63, 63}}});
  }
  const size_t one_dtype = cases.size() / 3;
  for (size_t i = 2 * one_dtype; i < 3 * one_dtype; ++i) {
    cases.push_back(cases[i]);
    cases.back().zero_point = true;
  }
  return cases;
}

PagedInput MakePagedInput(const PagedCase& c) {
  int64_t tokens = 0;
  for (const PagedSequence& s : c.sequences) tokens += s.context;
  PagedInput in;
  in.q = Random(tokens * c.heads * c.head_dim, 11);
  in.k = Random(tokens * c.kv_heads * c.head_dim, 12);
  in.v = Random(tokens * c.kv_heads * c.head_dim, 13);
  if (c.bad_token >= 0) {
    const int64_t cols = c.kv_heads * c.head_dim;
    std::fill_n((c.bad_value ? in.v : in.k).begin() + c.bad_token * cols, cols, c.bad);
  }
  return in;
}

double CodeBound(const PagedCase& c, double steps) {
  const PagedInput in = MakePagedInput(c);
  auto largest = [](const Floats& all) {
    double most = 0;
    for (const float x : all) most = std::max(most, std::abs(double{x}));
    return most;
  };
  double q = 0;  // the largest sum of |q| over a head
  for (size_t at = 0; at < in.q.size(); at += c.head_dim) {
    double sum = 0;
    for (int d = 0; d < c.head_dim; ++d) sum += std::abs(double{in.q[at + d]});
    q = std::max(q, sum);
  }
  // Turning makes an element, or a sum of |q|, at most sqrt(2) times as large. Rounding up to f16,
  // and the middle to f16, makes a scale at most 1 + 2^-9 times as large.
  const double turned = c.turn ? std::sqrt(2.0) : 1;
  const double key_step = (1 + 0x1p-9) * turned * largest(in.k) / 127;
  const double value_step = (1 + 0x1p-9) * largest(in.v) / 127;
  // All scores move by at most `score`: every weight by a factor within e^(2 score).
  const double score = double{c.scale()} * turned * q * steps * key_step;
  return steps * value_step + std::expm1(2 * score) * (largest(in.v) + value_step);
}

Floats RunPaged(const PagedCase& c, Lab& lab, bool poison) {
  Runner runner(c, lab);
  if (poison) runner.Poison();
  // First everything before the queries, then the queries of all sequences in one step.
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    const int64_t before = c.sequences[s].context - c.sequences[s].queries;
    if (before > 0) runner.Run({{s, 0, before}});
  }
  std::vector<Piece> last;
  for (size_t s = 0; s < c.sequences.size(); ++s) {
    last.push_back({s, c.sequences[s].context - c.sequences[s].queries, c.sequences[s].context});
  }
  return lab.Get(runner.Run(last));
}

Floats RunChunked(const PagedCase& c, size_t s, const std::vector<int64_t>& borders, Lab& lab) {
  Runner runner(c, lab);
  Floats out;
  int64_t begin = 0;
  for (const int64_t end : borders) {
    const Floats part = lab.Get(runner.Run({{s, begin, end}}));
    out.insert(out.end(), part.begin(), part.end());
    begin = end;
  }
  const int64_t cols = c.heads * c.head_dim;
  return Slice(out, c.sequences[s].context - c.sequences[s].queries, c.sequences[s].context, cols);
}

}  // namespace tessera::kernels
