#include "services/decode/engine/sampling_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::decode {
namespace {

absl::Status Refuse(absl::string_view field, double value, absl::string_view allowed) {
  return base::BadField(field, "SAMPLING_INVALID",
                        absl::StrCat(field, " is ", value, "; it must be ", allowed));
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
  return absl::OkStatus();
}

}  // namespace tessera::decode
