#include "services/vision/connector/tensor_source.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/weights/finite.h"

namespace tessera::vision {

absl::StatusOr<TensorView> TensorSource::Get(const std::string& name, const Shape& shape) {
  const TensorView* view = weights_.Find(name);
  if (view == nullptr) {
    return base::Error(absl::StatusCode::kNotFound, "TENSOR_MISSING",
                       absl::StrCat("the model's files have no tensor \"", name, "\" ",
                                    ShapeText(shape), ", which its config asks for"));
  }
  if (view->shape != shape) {
    return base::Error(absl::StatusCode::kInvalidArgument, "TENSOR_SHAPE",
                       absl::StrCat("tensor \"", name, "\" is ", ShapeText(view->shape),
                                    ", its config asks for ", ShapeText(shape)));
  }
  if (!IsFloat16Or32(view->dtype)) {
    const absl::string_view dtype = Name(view->dtype);
    return base::Error(
        absl::StatusCode::kInvalidArgument, "TENSOR_DTYPE",
        absl::StrCat("tensor \"", name, "\" is ", dtype, "; supported: F32, F16, BF16"));
  }
  RETURN_IF_ERROR(weights::CheckFinite(name, *view));
  used_.push_back(name);
  used_bytes_ += view->bytes();
  return *view;
}

absl::StatusOr<std::string> TensorSource::FindPrefix(absl::Span<const absl::string_view> prefixes,
                                                     absl::string_view probe) const {
  for (absl::string_view prefix : prefixes) {
    if (Has(absl::StrCat(prefix, probe))) return std::string(prefix);
  }
  return base::Error(absl::StatusCode::kNotFound, "TENSOR_MISSING",
                     absl::StrCat("the model's files have no tensor \"", prefixes[0], probe,
                                  "\", under none of the names in use (prefixes ",
                                  absl::StrJoin(prefixes, ", "), ")"));
}

std::vector<std::string> TensorSource::Unused(absl::Span<const std::string> prefixes) const {
  const absl::flat_hash_set<std::string> used(used_.begin(), used_.end());
  std::vector<std::string> unused;
  for (std::string& name : weights_.names()) {
    const bool ours = std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
      return absl::StartsWith(name, prefix);
    });
    if (ours && !used.contains(name)) unused.push_back(std::move(name));
  }
  return unused;
}

}  // namespace tessera::vision
