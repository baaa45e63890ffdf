#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tessera::kernels {

// A token that may be drawn, and exp((logit - largest) / temperature).
struct Candidate {
  float logit;
  int32_t id;
  double weight;
};

// Whether `row` asks for other logits than the model's.
bool AdjustsLogits(const SamplingRow& row);

// to = `logits` with bias and penalties as SamplingRow says: logit + bias is rounded to f32, then
// the penalties run in double and are rounded once; both end at the largest finite number.
// REQUIRES: to.size() is logits.size() and all that SamplingRow requires.
void AdjustLogits(absl::Span<const float> logits, const SamplingRow& row, absl::Span<float> to);

// Draws a token from finite `logits` as SamplingRow says. Shared by the host backends, so that the
// same logits give the same id on each: order (logit, then lowest id), sums in double in that
// order. Without top-k and top-p candidates stand in the order of their ids.
// `scratch` keeps its capacity, at least logits.size(), from call to call.
// REQUIRES: logits not empty, row.temperature > 0.
int32_t DrawToken(absl::Span<const float> logits, const SamplingRow& row,
                  std::vector<Candidate>& scratch);

}  // namespace tessera::kernels
