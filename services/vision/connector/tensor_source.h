#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/weights/weights.h"

namespace tessera::vision {

// Looks tensors up in a model's files, checks them and remembers which were asked for. One thread.
// Errors name the tensor: NOT_FOUND (reason TENSOR_MISSING) or INVALID_ARGUMENT (TENSOR_SHAPE,
// TENSOR_DTYPE, WEIGHTS_NONFINITE).
class TensorSource {
 public:
  explicit TensorSource(const weights::Weights& weights) : weights_(weights) {}

  bool Has(absl::string_view name) const { return weights_.Find(name) != nullptr; }
  // The tensor, f32, f16 or bf16, of exactly this shape, all elements finite. Reads it: hand it to
  // the backend next.
  absl::StatusOr<TensorView> Get(const std::string& name, const Shape& shape);

  // The first of `prefixes` for which the file has `prefix + probe`. Without one: TENSOR_MISSING,
  // naming all that were tried.
  absl::StatusOr<std::string> FindPrefix(absl::Span<const absl::string_view> prefixes,
                                         absl::string_view probe) const;

  // What Get answered, in that order.
  const std::vector<std::string>& used() const { return used_; }
  // Names in the files that begin with one of `prefixes` and were never asked for, sorted.
  std::vector<std::string> Unused(absl::Span<const std::string> prefixes) const;
  // Bytes of used() in the files.
  size_t used_bytes() const { return used_bytes_; }
  const weights::Weights& weights() const { return weights_; }

 private:
  const weights::Weights& weights_;
  std::vector<std::string> used_;
  size_t used_bytes_ = 0;
};

}  // namespace tessera::vision
