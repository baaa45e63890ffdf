#include "services/decode/template/limits.h"

#include "absl/strings/str_cat.h"
#include "services/decode/template/failure.h"

namespace tessera::decode::jinja {

absl::Status Budget::Steps(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) {
    return Failure(absl::StrCat("takes more than ", limits_.max_steps, " steps"));
  }
  return absl::OkStatus();
}

absl::Status Budget::Bytes(size_t bytes, size_t size) {
  if (size > limits_.max_output_bytes || bytes > limits_.max_output_bytes) {
    return Failure(absl::StrCat("makes a text of more than ", limits_.max_output_bytes, " bytes"));
  }
  bytes_ += bytes;
  if (bytes_ > limits_.max_total_bytes) {
    return Failure(absl::StrCat("uses more than ", limits_.max_total_bytes, " bytes"));
  }
  return Steps(static_cast<int64_t>(bytes / 64));
}

absl::Status Budget::Enter() {
  if (++depth_ > limits_.max_run_depth) {
    return Failure(absl::StrCat("nests deeper than ", limits_.max_run_depth, " evaluations"));
  }
  return absl::OkStatus();
}

}  // namespace tessera::decode::jinja
