#include "tests/services/decode/model/paged_runner.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "common/base/check.h"
#include "kernels/create/create.h"
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

// Every id that stands in the prompt or was drawn, once.
void AddSeen(int32_t id, bool drawn, std::vector<kernels::SeenToken>& seen) {
  const auto at = std::find_if(seen.begin(), seen.end(), [id](auto& s) { return s.id == id; });
  if (id < 0) return;
  if (at != seen.end()) {
    at->answer_count += drawn;
  } else {
    seen.push_back({id, drawn});
  }
}

bool Penalizes(const kernels::SamplingRow& row) {
  return row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0;
}

}  // namespace

struct PagedRunner::Place {
  std::vector<int32_t> blocks;
  int64_t done = 0;
  int64_t rows_done = 0;
  std::vector<kernels::BlockCopy> copies;  // for its next chunk
};

PagedRunner::PagedRunner(const std::string& model_dir, Options options)
    : options_(std::move(options)), pool_(options_.threads, /*spin_microseconds=*/0) {
  backend_ = MakeBackend(options_.device, pool_);
  const auto config = OrDie(decode::DecoderConfig::Load(model_dir));
  const auto weights = OrDie(weights::Weights::Open(model_dir));
  model_ = OrDie(decode::LlamaModel::Create(*weights, config, *backend_, options_.llama));
  spec_ = decode::SpecFor(config, 1, options_.kv_dtype);
  spec_.zero_point = options_.kv_zero_point;
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

void PagedRunner::AddChunk(const Script& script, Place& place, int64_t count, Logits logits,
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
    const bool last = i + 1 == place.done + count && i + 1 >= script.prompt;
    if (logits == Logits::kAll || last) plan.logit_tokens.push_back(token);
  }
  place.done += count;
  group.copies.insert(group.copies.end(), place.copies.begin(), place.copies.end());
  place.copies.clear();
  plan.query_begin.push_back(static_cast<int32_t>(plan.ids.size()));
  plan.adapter.push_back(0);
  group.context.push_back(static_cast<int32_t>(place.done));
}

void PagedRunner::FillPlan(const std::vector<Script>& scripts, const std::vector<Chunk>& chunks,
                           Logits logits, std::vector<Place>& places,
                           decode::BatchPlan& plan) const {
  plan.Clear();
  decode::LayerGroup& group = plan.groups[0];
  for (const Chunk& chunk : chunks) {
    Place& place = places[chunk.sequence];
    AddChunk(scripts[chunk.sequence], place, chunk.count, logits, plan);
    group.table_width = std::max<int64_t>(group.table_width, place.blocks.size());
  }
  group.block_table.assign(chunks.size() * group.table_width, 0);
  for (size_t s = 0; s < chunks.size(); ++s) {
    const auto& blocks = places[chunks[s].sequence].blocks;
    std::copy(blocks.begin(), blocks.end(), group.block_table.begin() + s * group.table_width);
  }
}

void PagedRunner::Step(const std::vector<Script>& scripts, const std::vector<Chunk>& chunks,
                       std::vector<Place>& places, std::vector<std::vector<float>>& logits) {
  decode::BatchPlan plan;
  FillPlan(scripts, chunks, Logits::kAll, places, plan);
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

std::vector<std::vector<float>> PagedRunner::Run(const std::vector<Script>& scripts,
                                                 const Steps& steps) {
  std::vector<Place> places;
  DealBlocks(scripts, places);
  std::vector<std::vector<float>> logits(scripts.size());
  for (const auto& chunks : steps) Step(scripts, chunks, places, logits);
  return logits;
}

std::vector<float> PagedRunner::RunBehind(const Script& owner, const Script& script,
                                          int64_t shared) {
  const std::vector<Script> scripts = {owner, script};
  std::vector<Place> places;
  DealBlocks(scripts, places);
  std::vector<std::vector<float>> logits(scripts.size());
  Step(scripts, {{0, owner.size()}}, places, logits);
  const int64_t full = shared / spec_.block_size;
  const std::vector<int32_t>& blocks = places[0].blocks;
  std::copy_n(blocks.begin(), full, places[1].blocks.begin());
  if (shared % spec_.block_size != 0) {
    places[1].copies.push_back({blocks[full], places[1].blocks[full]});
  }
  places[1].done = shared;
  places[1].rows_done = std::count(script.ids.begin(), script.ids.begin() + shared, -1);
  Step(scripts, {{1, script.size() - shared}}, places, logits);
  return logits[1];
}

std::vector<kernels::Sampled> PagedRunner::SampleStep(
    const decode::BatchPlan& plan, const std::vector<kernels::SamplingRow>& rows) {
  const decode::StepOutput output = OrDie(model_->Forward(plan, cache_));
  std::vector<kernels::Sampled> sampled(rows.size());
  if (!rows.empty()) {
    backend_->Sample({.logits = output.logits,
                      .id_limit = static_cast<int32_t>(output.logits.cols),
                      .rows = rows,
                      .out = absl::MakeSpan(sampled)});
  }
  CHECK(backend_->Synchronize().ok());
  return sampled;
}

std::vector<std::vector<kernels::Sampled>> PagedRunner::Generate(
    std::vector<Script> scripts, std::vector<kernels::SamplingRow> rows, int64_t count,
    int64_t chunk) {
  std::vector<std::vector<kernels::SeenToken>> seen(scripts.size());
  for (size_t s = 0; s < scripts.size(); ++s) {
    for (const int32_t id : scripts[s].ids) AddSeen(id, /*drawn=*/false, seen[s]);
    scripts[s].Append(std::vector<int32_t>(count, 0));  // filled as they are drawn
  }
  std::vector<Place> places;
  DealBlocks(scripts, places);
  std::vector<std::vector<kernels::Sampled>> out(scripts.size());
  decode::BatchPlan plan;
  while (true) {
    std::vector<Chunk> chunks;
    std::vector<int> drawing;
    std::vector<kernels::SamplingRow> settings;
    for (int s = 0; s < static_cast<int>(scripts.size()); ++s) {
      if (static_cast<int64_t>(out[s].size()) == count) continue;
      const int64_t left = scripts[s].prompt - places[s].done;
      chunks.push_back({s, left > 0 ? std::min(left, chunk) : 1});
      if (left > chunk) continue;
      drawing.push_back(s);
      rows[s].token_index = out[s].size();
      if (Penalizes(rows[s])) rows[s].seen = seen[s];
      settings.push_back(rows[s]);
    }
    if (chunks.empty()) return out;
    FillPlan(scripts, chunks, Logits::kLastOfPromptAndAnswer, places, plan);
    const std::vector<kernels::Sampled> sampled = SampleStep(plan, settings);
    for (size_t i = 0; i < drawing.size(); ++i) {
      const int s = drawing[i];
      scripts[s].ids[scripts[s].prompt + out[s].size()] = sampled[i].id;
      AddSeen(sampled[i].id, /*drawn=*/true, seen[s]);
      out[s].push_back(sampled[i]);
    }
  }
}

}  // namespace tessera::testing
