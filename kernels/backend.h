#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/tensor.h"
#include "kernels/device_memory.h"

// What a device can do: the one page that reference, CPU and CUDA implement.
//
// Ops only enqueue, in order, on the backend's stream. Their results and errors exist after
// Synchronize(). Params structs, views and the list MatMulParams::outs are read during the call;
// everything else an op was given (buffers, weights, spans of numbers, host memory) lives and stays
// as it is until then. Ops take views and a params struct and allocate nothing once warm. Shapes
// are REQUIRES: a wrong one is our bug and aborts. One backend per thread; nothing here is
// thread-safe.
//
// The same answer (reference and CPU): a row's products and attention are summed in one fixed order
// whatever its batch mates, its chunk and the number of threads, so results are equal to the bit.
namespace tessera::kernels {

enum class Activation {
  kNone,
  kRelu,
  kGelu /* erf */,
  kGeluTanh,
  kQuickGelu /* x s(1.702x) */,
  kSilu
};

// out = residual? + activation(x * weight^T + bias?)
struct MatMulOut {
  const DeviceMatrix* weight = nullptr;  // [n, k]
  const DeviceVector* bias = nullptr;    // [n] or null
  DeviceView out;                        // [m, n]
};
struct MatMulParams {
  DeviceView x;                      // [m, k]
  absl::Span<const MatMulOut> outs;  // several matrices of one input: q, k, v; gate, up
  Activation activation = Activation::kNone;
  bool add_to_out = false;  // the residual is what `out` holds
};

// Rotary angles of a step: theta = position * inverse_frequency[c], a product in f32; cos and sin
// are scaled by `attention_scale`. Component c takes its position from axis 0, 1 or 2 as `sections`
// deals them (M-RoPE: Qwen2-VL, arXiv 2409.12191, section 2.1); empty sections mean axis 0 for all.
struct RotaryAnglesParams {
  absl::Span<const float> inverse_frequency;  // [sets, head_dim / 2]
  absl::Span<const int32_t> frequency_set;    // [tokens]: which set a token uses; empty: set 0
  absl::Span<const int32_t> positions[3];     // [tokens] each
  absl::Span<const int32_t> sections;
  float attention_scale = 1.0f;
  DeviceView cos, sin;  // [tokens, head_dim / 2]
};

// Turns component i with i + head_dim / 2 (arXiv 2104.09864, halves as Llama stores them) in q (in
// place) and k, then writes k and v of token t into slot slots[t] of the cache's layer.
struct RotaryKvParams {
  DeviceView q;         // [tokens, heads * head_dim]
  DeviceView k, v;      // [tokens, kv_heads * head_dim]
  DeviceView cos, sin;  // [tokens, head_dim / 2]
  const KvCache* cache = nullptr;
  int layer = 0;
  absl::Span<const int32_t> slots;  // [tokens]: block * block_size + place in the block
};

struct KvCacheSpec {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t blocks = 0;
  int block_size = 16;  // tokens
  // f16, f32, or int8 with a scale per token and head: head_dim + 2 bytes for a key or a value, of
  // which every element is off by at most half its scale, 1 / 127 of the largest (kv_codes.h).
  DType dtype = DType::kF16;
  // int8 only: a zero point beside the scale, for vectors that lie to one side of 0; 2 bytes more.
  bool zero_point = false;
};

// A KV block to be copied whole, all layers, onto another.
struct BlockCopy {
  int32_t from = 0;
  int32_t to = 0;
};

// Causal attention over paged keys: query row i of the n rows of sequence s sees the keys
// [0, context[s] - (n - 1 - i)). Query head h reads kv head h / (heads / kv_heads).
struct PagedAttentionParams {
  DeviceView q, out;  // [tokens, heads * head_dim]
  const KvCache* cache = nullptr;
  int layer = 0;
  int heads = 0;
  float scale = 0;                        // 1 / sqrt(head_dim)
  absl::Span<const int32_t> query_begin;  // [sequences + 1] rows of q, cumulative
  absl::Span<const int32_t> context;      // [sequences] keys, this step's included
  absl::Span<const int32_t> block_table;  // [sequences, table_width] block numbers
  int64_t table_width = 0;
};

// Attention without a mask inside each segment: segment s takes query rows query_begin[s..s+1) and
// sees exactly the key rows key_begin[s..s+1). Pictures packed together, windows, cross attention.
struct PackedAttentionParams {
  DeviceView q, k, v, out;  // [rows, heads * head_dim]
  int heads = 0;
  float scale = 0;
  absl::Span<const int32_t> query_begin;  // [segments + 1]
  absl::Span<const int32_t> key_begin;    // [segments + 1]
};

// A token that a row's prompt or answer holds already.
struct SeenToken {
  int32_t id = 0;            // below id_limit
  int32_t answer_count = 0;  // times that the answer holds it
};
struct LogitBias {
  int32_t id = 0;  // below id_limit
  float bias = 0;
};

// How one row of logits is turned into a token. First `bias` is added, then the penalties apply to
// the `seen` tokens: logits above 0 are divided by `repetition_penalty`, others multiplied with it
// (arXiv 1909.05858, section 4.1), then answer_count * frequency_penalty and, where answer_count is
// not 0, presence_penalty are taken away. temperature 0 is greedy (lowest id wins a tie). Otherwise
// logits / temperature, then top-k (0: off), top-p (1: off), min-p (0: off) in this
// order, each on what the one before left; the draw is Philox4x32-10 (Salmon et al., SC 2011) with
// key = seed and counter = token_index: it does not depend on batch mates. Finite logits stay
// finite whatever is added. REQUIRES: bias and penalties finite, repetition_penalty > 0.
struct SamplingRow {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  uint64_t token_index = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  absl::Span<const SeenToken> seen = {};  // each id once; empty where no penalty is set
  absl::Span<const LogitBias> bias = {};  // each id once
};
struct Sampled {
  int32_t id = -1;
  // Log-probabilities are of the model's own distribution: no bias, penalty or temperature.
  float logprob = 0;
  int32_t top_ids[5] = {-1, -1, -1, -1, -1};  // most likely first
  float top_logprobs[5] = {0, 0, 0, 0, 0};
  bool finite = false;  // false: a logit was NaN or infinite; then id is -1
};
struct SampleParams {
  DeviceView logits;  // [rows, vocab]
  // The distribution is over the ids below it: what lies beyond is padding and not looked at.
  // REQUIRES: 0 < id_limit <= vocab.
  int32_t id_limit = 0;
  absl::Span<const SamplingRow> rows;
  absl::Span<Sampled> out;  // [rows], valid after Synchronize
};

// Bytes of device memory now in use.
struct MemoryUse {
  size_t weights = 0;
  size_t kv_cache = 0;
  size_t buffers = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string name() const = 0;  // "reference", "cpu (AVX3_ZEN4, 2 threads)", "cuda:0 ..."
  virtual MemoryUse memory() const = 0;
  // Bytes that the device could still give. On reference and CPU what the host and the process's
  // cgroups leave (kernels/free_memory.h); what was allocated and not written yet counts as free,
  // so ask before memory is reserved. 0: unknown. Any thread; not for the hot path.
  virtual size_t FreeMemory() const = 0;

  // --- memory; RESOURCE_EXHAUSTED with bytes asked for and in use when there is none ---
  // A buffer of `elements` activations, zeroed. Views of it are made with View().
  virtual absl::StatusOr<DeviceBuffer> Allocate(int64_t elements) = 0;
  // Weights [n, k] (f32, f16 or bf16), read from `weight` now and repacked as the backend likes.
  // Serves MatMul and EmbedTokens alike, so a tied head costs nothing.
  virtual absl::StatusOr<DeviceMatrix> LoadMatrix(const TensorView& weight) = 0;
  // [n] weights (f32, f16 or bf16): norms and biases.
  virtual absl::StatusOr<DeviceVector> LoadVector(const TensorView& vector) = 0;
  // All blocks zeroed.
  virtual absl::StatusOr<KvCache> MakeKvCache(const KvCacheSpec& spec) = 0;
  virtual size_t KvBytesPerBlock(const KvCacheSpec& spec) const = 0;

  // --- bytes in and out ---
  // out[i] = host row i, converted. host: [out.rows, out.cols], f32, f16 or bf16.
  virtual void Upload(const TensorView& host, DeviceView out) = 0;
  // host: [x.rows * x.cols], row-major.
  virtual void Download(DeviceView x, absl::Span<float> host) = 0;

  // --- rows ---
  // out[i] = row ids[i] of the table; a negative id leaves row i as it is (a picture's row).
  virtual void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids,
                           DeviceView out) = 0;
  // out[to[i]] = x[from[i]]; x and out do not overlap.
  virtual void CopyRows(DeviceView x, absl::Span<const int32_t> from, DeviceView out,
                        absl::Span<const int32_t> to) = 0;
  // x[i] += table[index[i]] (position embeddings).
  virtual void AddRows(DeviceView x, DeviceView table, absl::Span<const int32_t> index) = 0;

  // --- arithmetic; `out` may be `x` for norms and GatedActivation ---
  virtual void RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon, DeviceView out) = 0;
  virtual void LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias,
                         float epsilon, DeviceView out) = 0;
  virtual void MatMul(const MatMulParams& params) = 0;
  // out = activation(gate) * up
  virtual void GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                               DeviceView out) = 0;

  // --- attention ---
  virtual void RotaryAngles(const RotaryAnglesParams& params) = 0;
  // In order. REQUIRES: blocks of the cache; no block both is written and was or will be read here.
  virtual void CopyKvBlocks(const KvCache& cache, absl::Span<const BlockCopy> copies) = 0;
  virtual void RotaryKvWrite(const RotaryKvParams& params) = 0;
  virtual void PagedAttention(const PagedAttentionParams& params) = 0;
  virtual void PackedAttention(const PackedAttentionParams& params) = 0;

  virtual void Sample(const SampleParams& params) = 0;

  // Waits for everything enqueued; INTERNAL when the device failed (the backend is then unusable).
  virtual absl::Status Synchronize() = 0;
};

// A view of the first rows * cols elements of `buffer`, rows dense.
inline DeviceView View(const DeviceBuffer& buffer, int64_t rows, int64_t cols, size_t offset = 0) {
  return {&buffer, offset, rows, cols, cols};
}

}  // namespace tessera::kernels
