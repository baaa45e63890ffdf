#include "tests/services/decode/engine/fake_engine.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/create/create.h"
#include "services/decode/cache/block_hash.h"
#include "tests/support/deferred_backend.h"

namespace tessera::testing {
namespace {

uint64_t Mix(uint64_t state, uint64_t value) {
  state ^= value + 0x9E3779B97F4A7C15ull + (state << 6) + (state >> 2);
  state *= 0xBF58476D1CE4E5B9ull;
  return state ^ (state >> 31);
}

uint64_t MarkOf(const TensorView& rows, int64_t row) {
  const size_t row_bytes = static_cast<size_t>(rows.shape[1]) * SizeOf(rows.dtype);
  uint64_t mark = 77;
  for (size_t i = 0; i < row_bytes; ++i) {
    mark = Mix(mark, static_cast<uint8_t>(rows.data[row * row_bytes + i]));
  }
  return mark;
}

}  // namespace

int32_t NextFakeToken(const std::vector<uint64_t>& tokens) {
  uint64_t state = 1;
  for (const uint64_t token : tokens) state = Mix(state, token);
  // Now and then 0, which ends an answer.
  return state % 41 == 0 ? 0 : static_cast<int32_t>(1 + state % (kFakeVocabulary - 1));
}

uint64_t RowMark(const store::EmbeddingRecord& record, int64_t row) {
  return MarkOf(record.view(), row);
}

FakeModel::FakeModel(kernels::Backend& backend, const decode::EngineOptions& options)
    : backend_(backend),
      block_size_(options.block_size),
      vocabulary_(options.vocabulary),
      slots_(options.blocks * options.block_size, ~uint64_t{0}) {
  CHECK_GE(vocabulary_, kFakeVocabulary);
  const int64_t elements = int64_t{options.scheduler.max_sequences} * vocabulary_;
  auto buffer = backend.Allocate(elements);
  CHECK(buffer.ok());
  buffer_ = *std::move(buffer);
  logits_.reserve(elements);
  marks_.reserve(slots_.size());
}

absl::StatusOr<decode::StepOutput> FakeModel::Forward(const decode::BatchPlan& plan,
                                                      kernels::KvCache&) {
  if (on_forward != nullptr) RETURN_IF_ERROR(on_forward(plan));
  WriteSlots(plan);
  const int64_t rows = static_cast<int64_t>(plan.logit_tokens.size());
  logits_.assign(rows * vocabulary_, 0.0f);
  int64_t sequence = 0;
  for (int64_t row = 0; row < rows; ++row) {
    while (plan.query_begin[sequence + 1] <= plan.logit_tokens[row]) ++sequence;
    CHECK_EQ(plan.logit_tokens[row], plan.query_begin[sequence + 1] - 1);
    ComputeLogits(plan, sequence, &logits_[row * vocabulary_]);
  }
  decode::StepOutput output;
  output.logits = kernels::View(buffer_, rows, vocabulary_);
  if (rows > 0) {
    backend_.Upload(
        {DType::kF32, {rows, vocabulary_}, reinterpret_cast<const std::byte*>(logits_.data())},
        output.logits);
  }
  return output;
}

void FakeModel::WriteSlots(const decode::BatchPlan& plan) {
  for (const kernels::BlockCopy& copy : plan.groups[0].copies) {
    std::copy_n(slots_.begin() + copy.from * block_size_, block_size_,
                slots_.begin() + copy.to * block_size_);
  }
  for (int64_t token = 0; token < plan.tokens(); ++token) {
    slots_.at(plan.groups[0].slots[token]) = static_cast<uint64_t>(plan.ids[token]);
  }
  for (const decode::RowRange& range : plan.rows) {
    for (int64_t row = 0; row < range.rows.shape[0]; ++row) {
      const int64_t token = range.first_token + row;
      CHECK_EQ(plan.ids[token], -1);
      slots_.at(plan.groups[0].slots[token]) = MarkOf(range.rows, row);
    }
  }
}

void FakeModel::ComputeLogits(const decode::BatchPlan& plan, int64_t sequence, float* logits) {
  const decode::LayerGroup& group = plan.groups[0];
  const int64_t tokens = plan.query_begin[sequence + 1] - plan.query_begin[sequence];
  const int32_t first_slot = group.slots[plan.query_begin[sequence]];
  const int32_t first_place = group.context[sequence] - static_cast<int32_t>(tokens);
  CHECK_EQ(first_slot % block_size_, first_place % block_size_);
  marks_.clear();
  for (int32_t place = 0; place < group.context[sequence]; ++place) {
    const int32_t block = group.block_table[sequence * group.table_width + place / block_size_];
    marks_.push_back(slots_.at(block * block_size_ + place % block_size_));
  }
  const bool poisoned = marks_[0] == static_cast<uint64_t>(poisoned_id);
  logits[NextFakeToken(marks_)] = 10.0f;
  if (poisoned) logits[3] = std::numeric_limits<float>::quiet_NaN();
}

decode::EngineDevice MakeFakeDevice(const decode::EngineOptions& options, base::ComputePool& pool,
                                    FakeDeviceOptions fake) {
  auto backend = kernels::CreateBackend(fake.backend, pool);
  CHECK(backend.ok());
  decode::EngineDevice device;
  device.backend = *std::move(backend);
  if (fake.deferred) {
    device.backend = MakeDeferredBackend(std::move(device.backend), std::move(fake.device_status));
  }
  kernels::KvCacheSpec spec;
  spec.layers = 1;
  spec.kv_heads = 1;
  spec.head_dim = 4;
  spec.blocks = options.blocks;
  spec.block_size = options.block_size;
  auto cache = device.backend->MakeKvCache(spec);
  CHECK(cache.ok());
  device.cache = *std::move(cache);
  auto model = std::make_unique<FakeModel>(*device.backend, options);
  model->on_forward = std::move(fake.on_forward);
  model->poisoned_id = fake.poisoned_id;
  device.model = std::move(model);
  return device;
}

decode::EngineOptions SmallEngine() {
  decode::EngineOptions options;
  options.scheduler.max_batch_tokens = 16;
  options.scheduler.max_sequences = 4;
  options.scheduler.max_waiting = 60;
  options.scheduler.context_tokens = 200;
  options.scheduler.stop_ids = {0};
  options.blocks = 64;
  options.block_size = 4;
  options.vocabulary = kFakeVocabulary;
  options.row_width = kFakeWidth;
  options.fetch.threads = 2;
  return options;
}

absl::StatusOr<std::optional<store::RecordPtr>> FakeStore::Get(const store::EmbeddingKey& key,
                                                               int64_t) {
  if (on_get != nullptr) on_get();
  base::MutexLock lock(mutex_);
  while (blocked_.contains(key)) changed_.Wait(mutex_);
  const auto it = records_.find(key);
  if (it == records_.end()) return std::optional<store::RecordPtr>();
  return std::optional<store::RecordPtr>(it->second);
}

absl::Status FakeStore::Put(store::RecordPtr record, absl::Duration) {
  base::MutexLock lock(mutex_);
  records_[record->key] = record;
  return absl::OkStatus();
}

void FakeStore::Block(const store::EmbeddingKey& key) {
  base::MutexLock lock(mutex_);
  blocked_.insert(key);
}

void FakeStore::Release() {
  base::MutexLock lock(mutex_);
  blocked_.clear();
  changed_.SignalAll();
}

store::RecordPtr FakeRecord(uint8_t number, int64_t rows, int64_t width) {
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->key = FakeKey(number);
  record->dtype = DType::kF16;
  record->rows = rows;
  record->width = width;
  for (int64_t i = 0; i < rows * width * 2; ++i) {
    record->data.push_back(static_cast<std::byte>((number * 31 + i * 7) % 59));
  }
  return record;
}

void CollectingSink::OnAccepted(const decode::AcceptedRequest& accepted) {
  base::MutexLock lock(mutex_);
  accepted_ = accepted;
}

void CollectingSink::OnNeedRows(absl::Span<const int32_t> pictures) {
  base::MutexLock lock(mutex_);
  CHECK(ends_ == 0);
  need_rows_.assign(pictures.begin(), pictures.end());
  changed_.SignalAll();
}

decode::SinkAnswer CollectingSink::OnTokens(absl::Span<const int32_t> ids,
                                            absl::Span<const kernels::Sampled> sampled) {
  base::MutexLock lock(mutex_);
  CHECK(ends_ == 0);
  CHECK_EQ(ids.size(), sampled.size());
  for (size_t i = 0; i < ids.size(); ++i) CHECK_EQ(ids[i], sampled[i].id);
  CHECK(!ids.empty());
  if (ids_.empty()) ids_.reserve(256);
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  changed_.SignalAll();
  return ids_.size() >= answer_after ? answer : decode::SinkAnswer::kContinue;
}

void CollectingSink::OnEnd(const absl::Status& status, const decode::Outcome& outcome) {
  base::MutexLock lock(mutex_);
  ++ends_;
  status_ = status;
  outcome_ = outcome;
  changed_.SignalAll();
}

void CollectingSink::AwaitEnd() {
  base::MutexLock lock(mutex_);
  while (ends_ == 0) changed_.Wait(mutex_);
}

void CollectingSink::AwaitTokens(size_t count) {
  base::MutexLock lock(mutex_);
  while (ids_.size() < count && ends_ == 0) changed_.Wait(mutex_);
}

std::vector<int32_t> CollectingSink::AwaitNeedRows() {
  base::MutexLock lock(mutex_);
  while (need_rows_.empty() && ends_ == 0) changed_.Wait(mutex_);
  return std::exchange(need_rows_, {});
}

decode::AcceptedRequest CollectingSink::accepted() {
  base::MutexLock lock(mutex_);
  return accepted_;
}

std::vector<int32_t> CollectingSink::ids() {
  base::MutexLock lock(mutex_);
  return ids_;
}

bool CollectingSink::ended() { return ends() > 0; }

int CollectingSink::ends() {
  base::MutexLock lock(mutex_);
  return ends_;
}

absl::Status CollectingSink::status() {
  base::MutexLock lock(mutex_);
  return status_;
}

decode::Outcome CollectingSink::outcome() {
  base::MutexLock lock(mutex_);
  return outcome_;
}

decode::Request TextRequest(int tokens, int64_t max_tokens, uint64_t seed,
                            std::shared_ptr<decode::TokenSink> sink) {
  decode::Request request;
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (int i = 0; i < tokens; ++i) {
    request.ids.push_back(static_cast<int32_t>(2 + random() % (kFakeVocabulary - 2)));
  }
  request.max_tokens = max_tokens;
  request.sink = std::move(sink);
  return request;
}

decode::Request PictureRequest(const std::vector<store::RecordPtr>& pictures, int tokens,
                               int64_t max_tokens, uint64_t seed,
                               std::shared_ptr<decode::TokenSink> sink) {
  decode::Request request = TextRequest(tokens, max_tokens, seed, std::move(sink));
  const std::vector<int32_t> text = std::exchange(request.ids, {});
  request.ids.push_back(text[0]);
  for (const store::RecordPtr& record : pictures) {
    decode::PromptPicture picture;
    picture.key = record->key;
    picture.first_token = static_cast<int32_t>(request.ids.size());
    picture.rows = static_cast<int32_t>(record->rows);
    request.pictures.push_back(picture);
    request.ids.insert(request.ids.end(), record->rows, -1);
  }
  request.ids.insert(request.ids.end(), text.begin() + 1, text.end());
  return request;
}

decode::Request AheadOf(decode::Request request) {
  request.priority = decode::Priority::kAhead;
  request.max_tokens = 0;
  return request;
}

void NameBlocks(decode::Request& request, int32_t block_size) {
  decode::BlockHasher hasher(block_size);
  decode::ChainRoot root;
  root.tenant = request.tenant;
  request.root = hasher.Root(root);
  request.chain = hasher.Chain(request.root, request.ids, request.pictures);
}

std::vector<int32_t> ExpectedAnswer(const decode::Request& request,
                                    const std::vector<store::RecordPtr>& pictures) {
  std::vector<uint64_t> tokens(request.ids.begin(), request.ids.end());
  for (size_t p = 0; p < pictures.size(); ++p) {
    for (int64_t row = 0; row < pictures[p]->rows; ++row) {
      tokens[request.pictures[p].first_token + row] = RowMark(*pictures[p], row);
    }
  }
  std::vector<int32_t> answer;
  while (static_cast<int64_t>(answer.size()) < request.max_tokens) {
    const int32_t next = NextFakeToken(tokens);
    if (next == 0) break;
    answer.push_back(next);
    tokens.push_back(static_cast<uint64_t>(next));
  }
  return answer;
}

}  // namespace tessera::testing
