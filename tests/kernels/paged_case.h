#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/lab.h"

// Sequences written by RotaryKvWrite and read by PagedAttention, whole or in chunks.
namespace tessera::kernels {

struct PagedSequence {
  int64_t context;  // keys in all
  int64_t queries;  // the last of them ask
};

struct PagedCase {
  int heads = 6, kv_heads = 2, head_dim = 16, block_size = 16;
  DType dtype = DType::kF16;
  std::vector<PagedSequence> sequences = {{1, 1}};
  bool zero_point = false;  // int8 only
  bool turn = true;         // rotary angles that are not 0
  int64_t bad_token = -1;   // its key (or value) is all `bad`
  float bad = std::numeric_limits<float>::quiet_NaN();
  bool bad_value = false;

  float scale() const;
  int64_t MaxContext() const;
  std::string Name() const;
};

// Of f16, f32 and int8 without and with zero points.
std::vector<PagedCase> PagedCases();

// All tokens of all sequences, one after another: q [tokens, heads * head_dim], k and v.
struct PagedInput {
  Floats q, k, v;
};
PagedInput MakePagedInput(const PagedCase& c);

// How far an output may move where every element of the int8 keys and values is off by `steps` of
// its vector's scale: 0.5 against the numbers themselves, 1 where a rounding falls the other way.
double CodeBound(const PagedCase& c, double steps);

// The outputs of every sequence's queries. `poison`: the whole cache holds NaN before the tokens
// are written. `order` permutes the sequences in the batch; the result is in the case's order.
Floats RunPaged(const PagedCase& c, Lab& lab, bool poison = false);

// The outputs of all queries of sequence `s`, written and asked for in chunks that end at `borders`
// (ascending, the last is its context), alone.
Floats RunChunked(const PagedCase& c, size_t s, const std::vector<int64_t>& borders, Lab& lab);

}  // namespace tessera::kernels
