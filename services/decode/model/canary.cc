#include "services/decode/model/canary.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

using weights::CanaryAnswer;

// Largest of all CanaryLeads, and a little.
constexpr double kSureLead = 0.25;

absl::Status Bad(absl::string_view what) {
  return base::Error(absl::StatusCode::kInvalidArgument, "CANARY_BAD",
                     absl::StrCat(what, "; make it again with tessera canary"));
}

absl::Status Failed(absl::string_view reason, absl::string_view what) {
  return base::Error(absl::StatusCode::kFailedPrecondition, reason, what);
}

absl::Status CheckPrompt(const CanaryDevice& device, absl::Span<const int32_t> prompt,
                         const Tensor& rows, int steps) {
  const auto places = std::count(prompt.begin(), prompt.end(), -1);
  if (rows.shape().size() != 2 || rows.shape()[0] != places ||
      rows.shape()[1] != device.config.hidden_size) {
    return Bad(absl::StrCat("rows ", ShapeText(rows.shape()), " for ", places, " places of ",
                            device.config.hidden_size));
  }
  for (const int32_t id : prompt) {
    if (id < -1 || id >= device.config.vocab_size) {
      return Bad(
          absl::StrCat("its prompt has token ", id, ", the vocabulary ", device.config.vocab_size));
    }
  }
  if (static_cast<int64_t>(prompt.size()) + steps <= device.config.max_position_embeddings) {
    return absl::OkStatus();
  }
  return Bad(absl::StrCat("its prompt of ", prompt.size(),
                          " tokens leaves no room in a context of ",
                          device.config.max_position_embeddings));
}

// One sequence, alone in its cache.
class Run {
 public:
  Run(const CanaryDevice& device, absl::Span<const int32_t> prompt, const Tensor& rows)
      : device_(device), ids_(prompt.begin(), prompt.end()), rows_(rows), prompt_(prompt.size()) {}

  absl::StatusOr<CanaryAnswer> Answer(int steps) {
    kernels::KvCacheSpec spec = device_.spec;
    spec.blocks = (prompt_ + steps + spec.block_size - 1) / spec.block_size;
    ASSIGN_OR_RETURN(cache_, device_.backend.MakeKvCache(spec));
    blocks_ = spec.blocks;
    while (static_cast<int>(answer_.ids.size()) < steps) {
      const int64_t left = static_cast<int64_t>(ids_.size()) - done_;
      RETURN_IF_ERROR(Step(std::min(left, device_.step_tokens)));
    }
    return std::move(answer_);
  }

 private:
  // Computes the next `count` tokens, and one more token where none are left behind them.
  absl::Status Step(int64_t count) {
    plan_.Clear();
    for (int64_t i = 0; i < count; ++i) AddToken(i);
    done_ += count;
    plan_.query_begin.push_back(static_cast<int32_t>(count));
    plan_.adapter.push_back(0);
    LayerGroup& group = plan_.groups[0];
    group.context.push_back(static_cast<int32_t>(done_));
    group.table_width = blocks_;
    for (int64_t block = 0; block < blocks_; ++block) {
      group.block_table.push_back(static_cast<int32_t>(block));
    }
    const bool last = done_ == static_cast<int64_t>(ids_.size());
    if (last) plan_.logit_tokens.push_back(static_cast<int32_t>(count) - 1);
    ASSIGN_OR_RETURN(const StepOutput output, device_.model.Forward(plan_, cache_));
    return last ? Take(output.logits) : device_.backend.Synchronize();
  }

  void AddToken(int64_t i) {
    const auto place = static_cast<int32_t>(done_ + i);
    const int32_t id = ids_[place];
    if (id < 0) AddRow(static_cast<int32_t>(i));
    plan_.ids.push_back(id);
    for (auto& axis : plan_.positions) axis.push_back(place);
    plan_.rotary_length.push_back(std::max(static_cast<int32_t>(prompt_), place + 1));
    plan_.groups[0].slots.push_back(place);  // the blocks are in order
  }

  void AddRow(int32_t token) {
    const bool goes_on = token > 0 && plan_.ids.back() < 0;
    if (goes_on) {
      ++plan_.rows.back().rows.shape[0];
    } else {
      const int64_t width = rows_.shape()[1];
      const std::byte* data = rows_.bytes().data() + rows_done_ * width * sizeof(float);
      plan_.rows.push_back({token, {DType::kF32, {1, width}, data}});
    }
    ++rows_done_;
  }

  // The next token by the device's own greedy draw, its lead from all logits.
  absl::Status Take(kernels::DeviceView logits) {
    std::vector<float> host(logits.rows * logits.cols);
    const kernels::SamplingRow greedy;
    kernels::Sampled sampled;
    device_.backend.Sample({.logits = logits,
                            .id_limit = static_cast<int32_t>(device_.config.vocab_size),
                            .rows = absl::MakeConstSpan(&greedy, 1),
                            .out = absl::MakeSpan(&sampled, 1)});
    device_.backend.Download(logits, absl::MakeSpan(host));
    RETURN_IF_ERROR(device_.backend.Synchronize());
    if (!sampled.finite) {
      return base::Error(absl::StatusCode::kInternal, "NONFINITE_LOGITS",
                         "the decoder computes NaN or infinity");
    }
    host.resize(device_.config.vocab_size);
    answer_.ids.push_back(sampled.id);
    AddLead(host);
    ids_.push_back(sampled.id);
    return absl::OkStatus();
  }

  void AddLead(std::vector<float>& logits) {
    double sum = 0, squares = 0;
    for (const float logit : logits) {
      sum += logit;
      squares += double{logit} * logit;
    }
    const double count = static_cast<double>(logits.size()), mean = sum / count;
    answer_.spreads.push_back(
        static_cast<float>(std::sqrt(std::max(0.0, squares / count - mean * mean))));
    std::partial_sort(logits.begin(), logits.begin() + std::min<size_t>(2, logits.size()),
                      logits.end(), std::greater<float>());
    answer_.gaps.push_back(logits.size() < 2 ? 0 : logits[0] - logits[1]);
  }

  const CanaryDevice& device_;
  std::vector<int32_t> ids_;  // prompt and answer
  const Tensor& rows_;
  const int64_t prompt_;
  kernels::KvCache cache_;
  int64_t blocks_ = 0, done_ = 0, rows_done_ = 0;
  BatchPlan plan_;
  CanaryAnswer answer_;
};

double LeadAt(const CanaryAnswer& answer, size_t step) {
  return answer.spreads[step] > 0 ? answer.gaps[step] / answer.spreads[step] : 0;
}

absl::Status Compare(absl::string_view to, const CanaryAnswer& answer, const CanaryAnswer& expected,
                     double bound) {
  const auto [at, wanted] =
      std::mismatch(answer.ids.begin(), answer.ids.end(), expected.ids.begin());
  if (at == answer.ids.end()) return absl::OkStatus();
  const size_t step = at - answer.ids.begin();
  if (LeadAt(expected, step) < bound) return absl::OkStatus();  // from there on, all may differ
  return Failed(
      "CANARY_FAILED",
      absl::StrFormat("token %d of the answer to %s is %d, but %d on the reference, with "
                      "a lead of %.2g spreads (bound %.2g): weights or device are "
                      "broken, or the file was made from other weights",
                      step + 1, std::string(to), *at, *wanted, LeadAt(expected, step), bound));
}

}  // namespace

absl::StatusOr<CanaryAnswer> AnswerCanary(const CanaryDevice& device,
                                          absl::Span<const int32_t> prompt, const Tensor& rows,
                                          int steps) {
  RETURN_IF_ERROR(CheckPrompt(device, prompt, rows, steps));
  return Run(device, prompt, rows).Answer(steps);
}

bool TellsSightFromGrey(const CanaryAnswer& answer, const CanaryAnswer& grey) {
  for (size_t step = 0; step < answer.ids.size(); ++step) {
    if (std::min(LeadAt(answer, step), LeadAt(grey, step)) < kSureLead) return false;
    if (answer.ids[step] != grey.ids[step]) return true;
  }
  return false;
}

// A logit is a product of the last hidden state with a row of the head, so an error of the state,
// relative to its norm, is about the error of a logit relative to the spread of all; the difference
// of two has 1.4 times that, and three deviations are allowed for. In f32 only the order of sums
// differs (1e-5 is seen). f16 computing: 1 % of the state, as for rows. KV in f16: 2^-11 of each
// key and value, through the layers some 0.3 %; in int8 (1/254 of the largest in a head) some 4 %.
double CanaryLead(DType compute_dtype, DType kv_dtype) {
  const double compute = compute_dtype == DType::kF32 ? 1e-3 : 0.05;
  const double cache = kv_dtype == DType::kF32 ? 0 : kv_dtype == DType::kF16 ? 0.015 : 0.17;
  return compute + cache;
}

absl::Status CheckCanary(const weights::Canary& canary, const CanaryDevice& device,
                         DType compute_dtype) {
  const int steps = static_cast<int>(canary.answer.ids.size());
  ASSIGN_OR_RETURN(const CanaryAnswer answer,
                   AnswerCanary(device, canary.prompt_ids, canary.rows, steps));
  ASSIGN_OR_RETURN(const CanaryAnswer grey,
                   AnswerCanary(device, canary.prompt_ids, canary.grey_rows, steps));
  if (answer.ids == grey.ids) {
    return Failed("CANARY_BLIND",
                  "the model is blind: it answers the same to a picture and to plain grey");
  }
  const double bound = CanaryLead(compute_dtype, device.spec.dtype);
  RETURN_IF_ERROR(Compare("the picture", answer, canary.answer, bound));
  return Compare("plain grey", grey, canary.grey, bound);
}

}  // namespace tessera::decode
