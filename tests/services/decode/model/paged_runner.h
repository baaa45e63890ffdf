#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/compute_pool.h"
#include "common/tensor/tensor.h"
#include "kernels/backend.h"
#include "services/decode/model/llama_model.h"
#include "tests/support/golden_case.h"

// Runs a decoder through BatchPlans and a paged KV cache, every token's logits kept.
namespace tessera::testing {

// One sequence with everything it will ever be fed.
struct Script {
  std::vector<int32_t> ids;        // prompt, then forced tokens; -1 where a row stands
  std::vector<int32_t> positions;  // rotary, [ids]
  int64_t prompt = 0;              // the first ids that are the prompt
  Tensor rows;                     // [number of -1 in ids, hidden]
};

// `count` further tokens of a sequence; a step is several of them.
struct Chunk {
  int sequence = 0;
  int64_t count = 0;
};
using Steps = std::vector<std::vector<Chunk>>;

// The prompt at once, then token by token.
Steps Alone(const Script& script);
// Chunks of `size` through prompt and continuation.
Steps InChunks(const Script& script, int64_t size);
// All together: sequence i begins at step i, its prompt goes in chunks of 5 + 3i tokens, then it
// decodes beside others that still prefill.
Steps Mixed(const std::vector<Script>& scripts);

// A backend with its own threads, a model and a KV cache on it.
class PagedRunner {
 public:
  struct Options {
    std::string device = "reference";  // as CreateBackend takes it, or "deferred": over reference
    int threads = 1;
    DType kv_dtype = DType::kF32;
    int64_t kv_tokens = 4096;
    uint32_t block_seed = 0;  // how block numbers are dealt; 0: in order
    decode::LlamaOptions llama = {};
  };
  PagedRunner(const std::string& model_dir, Options options);  // aborts when it cannot

  // Logits of every token, one [ids, vocab] per script. The cache is not cleared before.
  std::vector<std::vector<float>> Run(const std::vector<Script>& scripts, const Steps& steps);

  const decode::DecoderConfig& config() const { return model_->config(); }
  kernels::Backend& backend() { return *backend_; }
  decode::LlamaModel& model() { return *model_; }
  kernels::KvCache& cache() { return cache_; }

 private:
  struct Place;
  void DealBlocks(const std::vector<Script>& scripts, std::vector<Place>& places);
  void AddChunk(const Script& script, Place& place, int64_t count, decode::BatchPlan& plan) const;

  const Options options_;
  base::ComputePool pool_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<decode::LlamaModel> model_;
  kernels::KvCacheSpec spec_;
  kernels::KvCache cache_;
};

// The script of a golden case: prompt with rows as `dtype`, then its greedy ids but the last.
// nullopt when the file gives no rows for its pictures.
std::optional<Script> ScriptOf(const GoldenModel& model, const GoldenCase& golden, DType dtype);

// The index of the largest value, the lowest of equals.
int32_t ArgMax(absl::Span<const float> row);

}  // namespace tessera::testing
