#include <algorithm>
#include <cmath>

#include "kernels/host/host_memory.h"
#include "kernels/reference/backend.h"

namespace tessera::kernels::reference {
namespace {

// The five best, best first, lowest id first among equals; and their log-probabilities.
void FillTop(absl::Span<const float> logits, double log_total, Sampled& out) {
  const int count = static_cast<int>(std::min<size_t>(5, logits.size()));
  for (int rank = 0; rank < count; ++rank) {
    int32_t best = -1;
    for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
      const bool taken = std::find(out.top_ids, out.top_ids + rank, id) != out.top_ids + rank;
      if (!taken && (best < 0 || logits[id] > logits[best])) best = id;
    }
    out.top_ids[rank] = best;
    out.top_logprobs[rank] = static_cast<float>(logits[best] - log_total);
  }
}

// The id that `row` takes from its adjusted logits.
int32_t Choose(absl::Span<const float> logits, const SamplingRow& row,
               std::vector<Candidate>& scratch) {
  if (row.temperature > 0) return DrawToken(logits, row, scratch);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

Sampled SampleOne(absl::Span<const float> logits, const SamplingRow& row,
                  std::vector<Candidate>& scratch) {
  Sampled out;
  out.finite = std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); });
  if (!out.finite) return out;
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(logit - largest);
  const double log_total = largest + std::log(total);
  FillTop(logits, log_total, out);
  std::vector<float> adjusted(logits.size());
  AdjustLogits(logits, row, absl::MakeSpan(adjusted));
  out.id = Choose(adjusted, row, scratch);
  out.logprob = static_cast<float>(logits[out.id] - log_total);
  return out;
}

}  // namespace

void ReferenceBackend::Sample(const SampleParams& params) {
  const HostView logits = Map(params.logits);
  CHECK(params.id_limit > 0 && params.id_limit <= logits.cols);
  CHECK_EQ(static_cast<int64_t>(params.rows.size()), logits.rows);
  CHECK_EQ(params.rows.size(), params.out.size());
  for (int64_t i = 0; i < logits.rows; ++i) {
    params.out[i] = SampleOne({logits.row(i), static_cast<size_t>(params.id_limit)}, params.rows[i],
                              candidates_);
  }
}

}  // namespace tessera::kernels::reference
