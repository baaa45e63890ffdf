#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/compute_pool.h"
#include "kernels/backend.h"
#include "services/decode/model/llama_model.h"
#include "tests/services/decode/model/script.h"

// Runs a decoder through BatchPlans and a paged KV cache.
namespace tessera::testing {

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
    bool kv_zero_point = false;  // kI8
  };
  PagedRunner(const std::string& model_dir, Options options);  // aborts when it cannot

  // Logits of every token, one [ids, vocab] per script. The cache is not cleared before.
  std::vector<std::vector<float>> Run(const std::vector<Script>& scripts, const Steps& steps);

  // `script` in the blocks of `owner`, which has the same first `shared` tokens and is run before:
  // full blocks are shared, the one in part is copied whole and written on. Logits [ids - shared,
  // vocab] of what the script itself computes, in one chunk.
  std::vector<float> RunBehind(const Script& owner, const Script& script, int64_t shared);

  // `count` tokens for each prompt, drawn as `rows` says: token_index is counted and `seen` filled
  // here, where a penalty is set. Prompts go in chunks of `chunk` tokens, all in one batch, where
  // each begins to decode when its prompt is done. [scripts][count]
  std::vector<std::vector<kernels::Sampled>> Generate(std::vector<Script> scripts,
                                                      std::vector<kernels::SamplingRow> rows,
                                                      int64_t count, int64_t chunk);

  const decode::DecoderConfig& config() const { return model_->config(); }
  kernels::Backend& backend() { return *backend_; }
  decode::LlamaModel& model() { return *model_; }
  kernels::KvCache& cache() { return cache_; }

 private:
  struct Place;
  enum class Logits { kAll, kLastOfPromptAndAnswer };
  void DealBlocks(const std::vector<Script>& scripts, std::vector<Place>& places);
  void AddChunk(const Script& script, Place& place, int64_t count, Logits logits,
                decode::BatchPlan& plan) const;
  void FillPlan(const std::vector<Script>& scripts, const std::vector<Chunk>& chunks, Logits logits,
                std::vector<Place>& places, decode::BatchPlan& plan) const;
  // Appends the logits of each chunk to its sequence's.
  void Step(const std::vector<Script>& scripts, const std::vector<Chunk>& chunks,
            std::vector<Place>& places, std::vector<std::vector<float>>& logits);
  std::vector<kernels::Sampled> SampleStep(const decode::BatchPlan& plan,
                                           const std::vector<kernels::SamplingRow>& rows);

  const Options options_;
  base::ComputePool pool_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<decode::LlamaModel> model_;
  kernels::KvCacheSpec spec_;
  kernels::KvCache cache_;
};

}  // namespace tessera::testing
