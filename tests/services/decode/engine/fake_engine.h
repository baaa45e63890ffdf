#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "common/base/compute_pool.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "services/decode/engine/engine_options.h"
#include "services/decode/engine/request.h"
#include "services/decode/engine/token_sink.h"
#include "tests/support/fake_key.h"

// What the engine's tests put around it: a model whose answers depend on every token and row that
// the paged cache holds for a sequence, a store that can be slow, a sink that remembers.
namespace tessera::testing {

inline constexpr int32_t kFakeVocabulary = 50;
inline constexpr int64_t kFakeWidth = 4;

// The token that FakeModel makes greedy after these tokens (a picture's row as RowMark says).
int32_t NextFakeToken(const std::vector<uint64_t>& tokens);
uint64_t RowMark(const store::EmbeddingRecord& record, int64_t row);

// Keeps a mark per slot, as a cache keeps keys, and computes logits from the marks that it finds
// through the block table: a wrong slot, table, length or row changes the answer.
class FakeModel final : public decode::StepModel {
 public:
  FakeModel(kernels::Backend& backend, const decode::EngineOptions& options);

  absl::StatusOr<decode::StepOutput> Forward(const decode::BatchPlan& plan,
                                             kernels::KvCache& cache) override;

  // Called first; an error fails the step. Set before the engine starts.
  std::function<absl::Status(const decode::BatchPlan& plan)> on_forward;
  // Sequences whose first token is this id get NaN logits.
  int32_t poisoned_id = -2;

 private:
  void WriteSlots(const decode::BatchPlan& plan);
  void ComputeLogits(const decode::BatchPlan& plan, int64_t sequence, float* logits);

  kernels::Backend& backend_;
  const int32_t block_size_;
  const int64_t vocabulary_;  // columns of logits; ids from kFakeVocabulary on are never meant
  kernels::DeviceBuffer buffer_;
  std::vector<uint64_t> slots_;
  std::vector<uint64_t> marks_;  // of one sequence
  std::vector<float> logits_;
};

struct FakeDeviceOptions {
  std::function<absl::Status(const decode::BatchPlan&)> on_forward;  // as FakeModel's
  std::function<absl::Status()> device_status;  // what Synchronize says; only where deferred
  int32_t poisoned_id = -2;
  const char* backend = "reference";  // the oracle may allocate in a step, "cpu" may not
  bool deferred = true;               // false: the backend as it is
};
// A backend and a FakeModel on it.
decode::EngineDevice MakeFakeDevice(const decode::EngineOptions& options, base::ComputePool& pool,
                                    FakeDeviceOptions fake = {});

// 4 sequences, 16 tokens a step, 64 blocks of 4, context 200, id 0 ends an answer.
decode::EngineOptions SmallEngine();

// Any thread.
class FakeStore final : public store::EmbeddingStore {
 public:
  using store::EmbeddingStore::Get;
  absl::StatusOr<std::optional<store::RecordPtr>> Get(const store::EmbeddingKey& key,
                                                      int64_t most_rows) override;
  absl::Status Put(store::RecordPtr record, absl::Duration recompute_cost) override;

  // Get of this key waits until Release.
  void Block(const store::EmbeddingKey& key);
  void Release();
  // Called by every Get.
  std::function<void()> on_get;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::map<store::EmbeddingKey, store::RecordPtr> records_ ABSL_GUARDED_BY(mutex_);
  std::set<store::EmbeddingKey> blocked_ ABSL_GUARDED_BY(mutex_);
};

// Rows that depend on `number`.
store::RecordPtr FakeRecord(uint8_t number, int64_t rows, int64_t width = kFakeWidth);

// Remembers what it is told. Any thread.
class CollectingSink final : public decode::TokenSink {
 public:
  void OnAccepted(const decode::AcceptedRequest& accepted) override;
  void OnNeedRows(absl::Span<const int32_t> pictures) override;
  decode::SinkAnswer OnTokens(absl::Span<const int32_t> ids,
                              absl::Span<const kernels::Sampled> sampled) override;
  void OnEnd(const absl::Status& status, const decode::Outcome& outcome) override;

  void AwaitEnd();
  void AwaitTokens(size_t count);        // or the end
  std::vector<int32_t> AwaitNeedRows();  // takes them

  decode::AcceptedRequest accepted();
  std::vector<int32_t> ids();
  bool ended();
  int ends();
  absl::Status status();
  decode::Outcome outcome();

  // Answers after this many tokens; set before the request.
  size_t answer_after = ~size_t{0};
  decode::SinkAnswer answer = decode::SinkAnswer::kStop;

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  decode::AcceptedRequest accepted_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> ids_ ABSL_GUARDED_BY(mutex_);
  std::vector<int32_t> need_rows_ ABSL_GUARDED_BY(mutex_);
  int ends_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  decode::Outcome outcome_ ABSL_GUARDED_BY(mutex_);
};

// A prompt of `tokens` ids that depend on `seed`; none is 0 or 1.
decode::Request TextRequest(int tokens, int64_t max_tokens, uint64_t seed,
                            std::shared_ptr<decode::TokenSink> sink);
// The same with the rows of pictures behind its first token.
decode::Request PictureRequest(const std::vector<store::RecordPtr>& pictures, int tokens,
                               int64_t max_tokens, uint64_t seed,
                               std::shared_ptr<decode::TokenSink> sink);
// The same asked as ahead-work.
decode::Request AheadOf(decode::Request request);
// Names its blocks, as Engine::Submit does.
void NameBlocks(decode::Request& request, int32_t block_size);
// What the engine must answer greedily, by the obvious way.
std::vector<int32_t> ExpectedAnswer(const decode::Request& request,
                                    const std::vector<store::RecordPtr>& pictures = {});

}  // namespace tessera::testing
