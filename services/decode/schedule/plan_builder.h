#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "services/decode/model/batch_plan.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// Writes down what one step computes. Pure; allocates nothing once warm.
class PlanBuilder {
 public:
  struct Limits {
    int32_t tokens = 0;     // of a step
    int32_t sequences = 0;  // of a step
    int32_t blocks = 0;     // of one sequence
    int32_t block_size = 0;
  };
  explicit PlanBuilder(const Limits& limits);

  void Clear();
  // The next `tokens` pending tokens of `sequence`; its logits, when no more are pending behind
  // them and it wants any. REQUIRES: its blocks hold them; it is not in the plan yet.
  void Add(Sequence& sequence, int32_t tokens);
  // After the last Add.
  void PlanTable();

  const BatchPlan& plan() const { return plan_; }
  // The sequences of the plan, in its order.
  absl::Span<Sequence* const> planned() const { return planned_; }
  bool Has(const Sequence& sequence) const;
  int32_t tokens_of(size_t s) const { return plan_.query_begin[s + 1] - plan_.query_begin[s]; }
  // For each of plan.logit_tokens: how to sample it, and for which sequence of the plan.
  absl::Span<const kernels::SamplingRow> sampling() const { return sampling_; }
  absl::Span<const int32_t> sampled_sequences() const { return sampled_sequences_; }

 private:
  void AddTokens(const Sequence& sequence, int32_t tokens);
  void AddRows(const Sequence& sequence, int32_t tokens);

  const int32_t block_size_;
  BatchPlan plan_;
  std::vector<Sequence*> planned_;
  std::vector<kernels::SamplingRow> sampling_;
  std::vector<int32_t> sampled_sequences_;
};

}  // namespace tessera::decode
