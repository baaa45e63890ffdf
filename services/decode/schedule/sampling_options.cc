#include "services/decode/schedule/sampling_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::decode {
namespace {

absl::Status Refuse(absl::string_view field, double value, absl::string_view allowed) {
  return base::BadField(field, "SAMPLING_INVALID",
                        absl::StrCat(field, " is ", value, "; it must be ", allowed));
}

absl::Status ValidateBias(absl::Span<const kernels::LogitBias> bias) {
  if (bias.size() > kMostBiases) {
    return base::BadField("options.logit_bias", "SAMPLING_INVALID",
                          absl::StrCat("options.logit_bias has ", bias.size(), " tokens; at most ",
                                       kMostBiases, " are allowed"));
  }
  for (const kernels::LogitBias& entry : bias) {
    if (entry.bias >= -100 && entry.bias <= 100) continue;
    return Refuse(absl::StrCat("options.logit_bias[", entry.id, "]"), entry.bias, "in [-100, 100]");
  }
  return absl::OkStatus();
}

}  // namespace

// Each test is written so that NaN fails it.
absl::Status Validate(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && options.temperature <= 2)) {
    return Refuse("options.temperature", options.temperature, "in [0, 2]");
  }
  if (options.top_k < 0) {
    return Refuse("options.top_k", static_cast<double>(options.top_k), "0 (off) or more");
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return Refuse("options.top_p", options.top_p, "in (0, 1]");
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return Refuse("options.min_p", options.min_p, "in [0, 1]");
  }
  if (!(options.repetition_penalty >= 0.1f && options.repetition_penalty <= 10)) {
    return Refuse("options.repetition_penalty", options.repetition_penalty, "in [0.1, 10]");
  }
  if (!(options.frequency_penalty >= -2 && options.frequency_penalty <= 2)) {
    return Refuse("options.frequency_penalty", options.frequency_penalty, "in [-2, 2]");
  }
  if (!(options.presence_penalty >= -2 && options.presence_penalty <= 2)) {
    return Refuse("options.presence_penalty", options.presence_penalty, "in [-2, 2]");
  }
  return ValidateBias(options.logit_bias);
}

absl::Status CheckVocabulary(const SamplingOptions& options, int32_t vocabulary) {
  for (const kernels::LogitBias& entry : options.logit_bias) {
    if (entry.id >= 0 && entry.id < vocabulary) continue;
    return base::BadField("options.logit_bias", "SAMPLING_INVALID",
                          absl::StrCat("options.logit_bias names token ", entry.id,
                                       "; the model has tokens 0 to ", vocabulary - 1));
  }
  return absl::OkStatus();
}

}  // namespace tessera::decode
