#include "tests/services/decode/model/paged_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "common/base/check.h"
#include "common/base/half.h"
#include "kernels/create.h"
#include "tests/support/deferred_backend.h"

namespace tessera::testing {
namespace {

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) base::CheckFailed(__FILE__, __LINE__, value.status().ToString());
  return *std::move(value);
}

std::unique_ptr<kernels::Backend> MakeBackend(const std::string& device, base::ComputePool& pool) {
  if (device == "deferred")
    return MakeDeferredBackend(OrDie(kernels::CreateBackend("reference", pool)));
  return OrDie(kernels::CreateBackend(device, pool));
}

// Rows of the pictures of a case: its own, or those of a case with the same pictures.
const TensorView* FindRows(const GoldenModel& model, const GoldenCase& golden) {
  if (const TensorView* rows = model.Find(golden, "image_rows")) return rows;
  for (const GoldenCase& other : model.cases) {
    if (other.images != golden.images) continue;
    if (const TensorView* rows = model.Find(other, "image_rows")) return rows;
  }
  return nullptr;
}

Tensor Converted(const TensorView& view, DType dtype) {
  const std::vector<float> values = ToFloats(view);
  Tensor result(dtype, view.shape);
  if (dtype == DType::kF32) {
    std::copy(values.begin(), values.end(), result.f32().begin());
    return result;
  }
  CHECK(dtype == DType::kF16);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = base::FloatToHalf(values[i]);
    std::memcpy(result.bytes().data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return result;
}

}  // namespace

Steps Alone(const Script& script) {
  Steps steps = {{{0, script.prompt}}};
  for (size_t i = script.prompt; i < script.ids.size(); ++i) steps.push_back({{0, 1}});
  return steps;
}

Steps InChunks(const Script& script, int64_t size) {
  Steps steps;
  for (int64_t left = script.ids.size(); left > 0; left -= size) {
    steps.push_back({{0, std::min(left, size)}});
  }
  return steps;
}

Steps Mixed(const std::vector<Script>& scripts) {
  std::vector<int64_t> done(scripts.size(), 0);
  Steps steps;
  for (size_t step = 0;; ++step) {
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < std::min(step + 1, scripts.size()); ++i) {
      const int64_t prompt_left = scripts[i].prompt - done[i];
      const int64_t all_left = static_cast<int64_t>(scripts[i].ids.size()) - done[i];
      const int64_t size = static_cast<int64_t>(5 + 3 * i);
      const int64_t count =
          prompt_left > 0 ? std::min(prompt_left, size) : std::min<int64_t>(all_left, 1);
      if (count > 0) chunks.push_back({static_cast<int>(i), count});
      done[i] += count;
    }
    if (chunks.empty()) return steps;
    std::rotate(chunks.begin(), chunks.begin() + step % chunks.size(), chunks.end());
    steps.push_back(chunks);
  }
}

struct PagedRunner::Place {
  std::vector<int32_t> blocks;
  int64_t done = 0;
  int64_t rows_done = 0;
};

PagedRunner::PagedRunner(const std::string& model_dir, Options options)
    : options_(std::move(options)), pool_(options_.threads, /*spin_microseconds=*/0) {
  backend_ = MakeBackend(options_.device, pool_);
  const auto config = OrDie(decode::DecoderConfig::Load(model_dir));
  const auto weights = OrDie(weights::Weights::Open(model_dir));
  model_ = OrDie(decode::LlamaModel::Create(*weights, config, *backend_, options_.llama));
  spec_ = decode::SpecFor(config, 1, options_.kv_dtype);
  spec_.blocks = (options_.kv_tokens + spec_.block_size - 1) / spec_.block_size;
  cache_ = OrDie(backend_->MakeKvCache(spec_));
}

void PagedRunner::DealBlocks(const std::vector<Script>& scripts, std::vector<Place>& places) {
  std::vector<int32_t> blocks(spec_.blocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::mt19937 random(options_.block_seed);
  for (size_t i = blocks.size(); options_.block_seed != 0 && i > 1; --i) {
    std::swap(blocks[i - 1], blocks[random() % i]);
  }
  places.resize(scripts.size());
  for (size_t s = 0; s < scripts.size(); ++s) {
    const size_t count = (scripts[s].ids.size() + spec_.block_size - 1) / spec_.block_size;
    CHECK_LE(count, blocks.size());
    places[s].blocks.assign(blocks.end() - count, blocks.end());
    blocks.resize(blocks.size() - count);
  }
}

void PagedRunner::AddChunk(const Script& script, Place& place, int64_t count,
                           decode::BatchPlan& plan) const {
  decode::LayerGroup& group = plan.groups[0];
  const int64_t width = script.rows.shape().empty() ? 0 : script.rows.shape()[1];
  for (int64_t i = place.done; i < place.done + count; ++i) {
    const int32_t token = static_cast<int32_t>(plan.ids.size());
    if (script.ids[i] < 0) {  // consecutive rows form one range
      const bool goes_on = i > place.done && script.ids[i - 1] < 0;
      if (goes_on) {
        ++plan.rows.back().rows.shape[0];
      } else {
        const TensorView all = script.rows.view();
        const std::byte* data = all.data + place.rows_done * width * SizeOf(all.dtype);
        plan.rows.push_back({token, {all.dtype, {1, width}, data}});
      }
      ++place.rows_done;
    }
    plan.ids.push_back(script.ids[i]);
    for (auto& axis : plan.positions) axis.push_back(script.positions[i]);
    plan.rotary_length.push_back(
        static_cast<int32_t>(std::max<int64_t>(script.prompt, script.positions[i] + 1)));
    group.slots.push_back(place.blocks[i / spec_.block_size] * spec_.block_size +
                          static_cast<int32_t>(i % spec_.block_size));
    plan.logit_tokens.push_back(token);
  }
  place.done += count;
  plan.query_begin.push_back(static_cast<int32_t>(plan.ids.size()));
  plan.adapter.push_back(0);
  group.context.push_back(static_cast<int32_t>(place.done));
}

std::vector<std::vector<float>> PagedRunner::Run(const std::vector<Script>& scripts,
                                                 const Steps& steps) {
  std::vector<Place> places;
  DealBlocks(scripts, places);
  std::vector<std::vector<float>> logits(scripts.size());
  decode::BatchPlan plan;
  for (const auto& chunks : steps) {
    plan.Clear();
    decode::LayerGroup& group = plan.groups[0];
    for (const Chunk& chunk : chunks) {
      AddChunk(scripts[chunk.sequence], places[chunk.sequence], chunk.count, plan);
      group.table_width =
          std::max<int64_t>(group.table_width, places[chunk.sequence].blocks.size());
    }
    group.block_table.assign(chunks.size() * group.table_width, 0);
    for (size_t s = 0; s < chunks.size(); ++s) {
      const auto& blocks = places[chunks[s].sequence].blocks;
      std::copy(blocks.begin(), blocks.end(), group.block_table.begin() + s * group.table_width);
    }
    const decode::StepOutput output = OrDie(model_->Forward(plan, cache_));
    std::vector<float> host(output.logits.rows * output.logits.cols);
    backend_->Download(output.logits, absl::MakeSpan(host));
    CHECK(backend_->Synchronize().ok());
    auto from = host.begin();
    for (const Chunk& chunk : chunks) {
      const auto to = from + chunk.count * output.logits.cols;
      logits[chunk.sequence].insert(logits[chunk.sequence].end(), from, to);
      from = to;
    }
  }
  return logits;
}

std::optional<Script> ScriptOf(const GoldenModel& model, const GoldenCase& golden, DType dtype) {
  Script script;
  if (!golden.images.empty()) {
    const TensorView* rows = FindRows(model, golden);
    if (rows == nullptr) return std::nullopt;
    script.rows = Converted(*rows, dtype);
  }
  script.prompt = static_cast<int64_t>(golden.input_ids.size());
  for (int32_t id : golden.input_ids) {
    script.ids.push_back(id == model.image_token_id ? -1 : id);
  }
  const int64_t places = std::count(script.ids.begin(), script.ids.end(), -1);
  CHECK_EQ(places, script.rows.shape().empty() ? 0 : script.rows.shape()[0]);
  script.ids.insert(script.ids.end(), golden.greedy_ids.begin(),
                    golden.greedy_ids.end() - (golden.greedy_ids.empty() ? 0 : 1));
  script.positions.resize(script.ids.size());
  std::iota(script.positions.begin(), script.positions.end(), 0);
  return script;
}

int32_t ArgMax(absl::Span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

}  // namespace tessera::testing
