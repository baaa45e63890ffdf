#include "kernels/host/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/check.h"
#include "kernels/philox.h"

namespace tessera::kernels {
namespace {

using Candidates = std::vector<Candidate>;

bool Before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

double TotalWeight(const Candidates& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

// Leaves the `k` best, best first.
void KeepTopK(Candidates& candidates, size_t k) {
  if (k < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + k, candidates.end(), Before);
    candidates.resize(k);
  }
  std::sort(candidates.begin(), candidates.end(), Before);
}

// Leaves the shortest run of best candidates that holds `share` of the mass, best first. Sorts no
// more than it must: a first run of 256, then longer ones.
void KeepTopP(Candidates& candidates, double share, double total) {
  size_t sorted = 0;
  double mass = 0;
  while (sorted < candidates.size()) {
    const size_t end = std::min(candidates.size(), std::max<size_t>(256, sorted * 4));
    const auto first = candidates.begin() + sorted;
    const auto last = candidates.begin() + end;
    if (end < candidates.size()) std::nth_element(first, last, candidates.end(), Before);
    std::sort(first, last, Before);
    for (; sorted < end; ++sorted) {
      mass += candidates[sorted].weight;
      if (mass >= share * total) {
        candidates.resize(sorted + 1);
        return;
      }
    }
  }
}

// The nearest f32; beyond the largest finite one, that.
float ToFinite(double x) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(x, -kLargest, kLargest));
}

float Penalize(double logit, int32_t answer_count, const SamplingRow& row) {
  logit =
      logit > 0 ? logit / double{row.repetition_penalty} : logit * double{row.repetition_penalty};
  logit -= double{row.frequency_penalty} * answer_count;
  if (answer_count != 0) logit -= double{row.presence_penalty};
  return ToFinite(logit);
}

bool Penalizes(const SamplingRow& row) {
  return !row.seen.empty() &&
         (row.repetition_penalty != 1 || row.frequency_penalty != 0 || row.presence_penalty != 0);
}

}  // namespace

bool AdjustsLogits(const SamplingRow& row) { return !row.bias.empty() || Penalizes(row); }

void AdjustLogits(absl::Span<const float> logits, const SamplingRow& row, absl::Span<float> to) {
  CHECK_EQ(to.size(), logits.size());
  CHECK(std::isfinite(row.frequency_penalty) && std::isfinite(row.presence_penalty));
  CHECK(std::isfinite(row.repetition_penalty) && row.repetition_penalty > 0);
  const auto limit = static_cast<int64_t>(logits.size());
  std::copy(logits.begin(), logits.end(), to.begin());
  for (const LogitBias& entry : row.bias) {
    CHECK(entry.id >= 0 && entry.id < limit);
    CHECK(std::isfinite(entry.bias));
    to[entry.id] = ToFinite(double{logits[entry.id]} + double{entry.bias});
  }
  if (!Penalizes(row)) return;
  for (const SeenToken& token : row.seen) {
    CHECK(token.id >= 0 && token.id < limit);
    CHECK_GE(token.answer_count, 0);
    to[token.id] = Penalize(to[token.id], token.answer_count, row);
  }
}

int32_t DrawToken(absl::Span<const float> logits, const SamplingRow& row, Candidates& scratch) {
  CHECK(!logits.empty());
  CHECK_GT(row.temperature, 0);
  const float largest = *std::max_element(logits.begin(), logits.end());
  scratch.clear();
  scratch.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double scaled = (static_cast<double>(logits[i]) - largest) / row.temperature;
    scratch.push_back({logits[i], static_cast<int32_t>(i), std::exp(scaled)});
  }
  if (row.top_k > 0) KeepTopK(scratch, static_cast<size_t>(row.top_k));
  if (row.top_p < 1) KeepTopP(scratch, row.top_p, TotalWeight(scratch));
  if (row.min_p > 0) {  // the best candidate's weight is 1
    std::erase_if(scratch,
                  [&](const Candidate& c) { return c.weight < row.min_p && c.weight < 1; });
  }
  const double target = UniformOf(row.seed, row.token_index) * TotalWeight(scratch);
  double mass = 0;
  for (const Candidate& candidate : scratch) {
    mass += candidate.weight;
    if (mass > target) return candidate.id;
  }
  return scratch.back().id;
}

}  // namespace tessera::kernels
