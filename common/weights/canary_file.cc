#include "common/weights/canary_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/weights/finite.h"
#include "common/weights/mapped_file.h"
#include "common/weights/safetensors.h"
#include "common/weights/safetensors_writer.h"
#include "common/weights/weights.h"

namespace tessera::weights {
namespace {

constexpr char kFormat[] = "1";
constexpr size_t kMaxFileBytes = size_t{1} << 30;

absl::Status BadCanary(absl::string_view what) {
  return base::Error(absl::StatusCode::kInvalidArgument, "CANARY_BAD",
                     absl::StrCat(what, "; make it again with tessera canary"));
}

template <typename T>
NamedTensor Named(const char* name, DType dtype, const std::vector<T>& values) {
  return {name,
          {dtype,
           {static_cast<int64_t>(values.size())},
           reinterpret_cast<const std::byte*>(values.data())}};
}

// Takes tensors out of a parsed file; the first that does not fit is the error.
class Reader {
 public:
  explicit Reader(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {}

  template <typename T>
  std::vector<T> Vector(const char* name, DType dtype) {
    const TensorView* view = Find(name, dtype, 1);
    if (view == nullptr) return {};
    std::vector<T> values(view->shape[0]);
    if (!values.empty()) std::memcpy(values.data(), view->data, view->bytes());
    return values;
  }

  Tensor Matrix(const char* name) {
    const TensorView* view = Find(name, DType::kF32, 2);
    if (view == nullptr) return {};
    Tensor matrix(view->dtype, view->shape);
    std::memcpy(matrix.bytes().data(), view->data, view->bytes());
    return matrix;
  }

  CanaryAnswer Answer(const std::string& prefix) {
    CanaryAnswer answer;
    answer.ids = Vector<int32_t>((prefix + "ids").c_str(), DType::kI32);
    answer.gaps = Vector<float>((prefix + "gaps").c_str(), DType::kF32);
    answer.spreads = Vector<float>((prefix + "spreads").c_str(), DType::kF32);
    if (answer.ids.empty() || answer.gaps.size() != answer.ids.size() ||
        answer.spreads.size() != answer.ids.size()) {
      Fail(absl::StrCat(prefix, "ids, gaps and spreads do not belong together"));
    }
    return answer;
  }

  void Fail(absl::string_view what) {
    if (status_.ok()) status_ = BadCanary(what);
  }
  const absl::Status& status() const { return status_; }

 private:
  const TensorView* Find(const char* name, DType dtype, size_t rank) {
    for (const NamedTensor& tensor : tensors_) {
      if (tensor.name != name) continue;
      const TensorView& view = tensor.view;
      if (view.dtype != dtype || view.shape.size() != rank || view.bytes() == 0) break;
      if (dtype == DType::kF32 && FirstNonfinite(view)) break;
      return &view;
    }
    Fail(absl::StrCat("its tensor ", name, " is missing or wrong"));
    return nullptr;
  }

  const std::vector<NamedTensor> tensors_;
  absl::Status status_;
};

absl::Status CheckFits(const Canary& canary) {
  if (canary.rows.shape() != canary.grey_rows.shape()) return BadCanary("its rows differ in shape");
  const auto row_places = std::count(canary.prompt_ids.begin(), canary.prompt_ids.end(), -1);
  if (row_places != canary.rows.shape()[0]) {
    return BadCanary(absl::StrCat("its prompt has ", row_places, " places for ",
                                  canary.rows.shape()[0], " rows"));
  }
  if (canary.prompt_ids.back() < 0) return BadCanary("its prompt ends with a row");
  if (canary.answer.ids.size() != canary.grey.ids.size())
    return BadCanary("its answers differ in length");
  return absl::OkStatus();
}

}  // namespace

std::string CanaryBytes(const Canary& canary) {
  CHECK(CheckFits(canary).ok());
  return SafetensorsBytes({{"rows", canary.rows.view()},
                           {"grey_rows", canary.grey_rows.view()},
                           Named("prompt_ids", DType::kI32, canary.prompt_ids),
                           Named("ids", DType::kI32, canary.answer.ids),
                           Named("gaps", DType::kF32, canary.answer.gaps),
                           Named("spreads", DType::kF32, canary.answer.spreads),
                           Named("grey_ids", DType::kI32, canary.grey.ids),
                           Named("grey_gaps", DType::kF32, canary.grey.gaps),
                           Named("grey_spreads", DType::kF32, canary.grey.spreads),
                           {"picture",
                            {DType::kU8,
                             {static_cast<int64_t>(canary.picture.size())},
                             reinterpret_cast<const std::byte*>(canary.picture.data())}}},
                          {{"format", kFormat},
                           {"model_digest", canary.model_digest},
                           {"preprocessing", canary.preprocessing}});
}

absl::StatusOr<Canary> ParseCanary(absl::string_view file) {
  absl::StatusOr<std::vector<NamedTensor>> tensors = ParseSafetensors(file);
  if (!tensors.ok()) return BadCanary(tensors.status().message());
  ASSIGN_OR_RETURN(const auto metadata, ParseMetadata(file));
  const auto text = [&metadata](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (text("format") != kFormat) {
    return BadCanary(absl::StrCat("its format is ", Quoted(text("format")), ", not ", kFormat));
  }
  Reader reader(*std::move(tensors));
  Canary canary;
  canary.model_digest = text("model_digest");
  canary.preprocessing = text("preprocessing");
  const std::vector<char> picture = reader.Vector<char>("picture", DType::kU8);
  canary.picture.assign(picture.begin(), picture.end());
  canary.rows = reader.Matrix("rows");
  canary.grey_rows = reader.Matrix("grey_rows");
  canary.prompt_ids = reader.Vector<int32_t>("prompt_ids", DType::kI32);
  canary.answer = reader.Answer("");
  canary.grey = reader.Answer("grey_");
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(CheckFits(canary));
  return canary;
}

absl::StatusOr<std::optional<Canary>> ReadCanary(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / kCanaryFileName).string();
  const absl::StatusOr<std::string> file = base::ReadFile(path, kMaxFileBytes);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return BadCanary(file.status().message());
  absl::StatusOr<Canary> canary = ParseCanary(*file);
  if (!canary.ok()) return base::Annotate(canary.status(), path);
  ASSIGN_OR_RETURN(const std::string digest, ModelDigest(model_dir));
  if (canary->model_digest != digest) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "CANARY_OTHER_MODEL",
                       absl::StrCat(path,
                                    ": it was made for another model (config.json or the tensors' "
                                    "names and shapes differ); make it again with tessera canary"));
  }
  return *std::move(canary);
}

CanaryResult RunCanary(const std::string& model_dir,
                       absl::FunctionRef<absl::Status(const Canary&)> check) {
  const absl::StatusOr<std::optional<Canary>> canary = ReadCanary(model_dir);
  if (!canary.ok()) return {.present = true, .status = canary.status()};
  if (!canary->has_value()) return {};
  return {.present = true, .status = check(**canary)};
}

absl::StatusOr<std::string> ModelDigest(const std::string& model_dir) {
  ASSIGN_OR_RETURN(const std::string config,
                   base::ReadFile((std::filesystem::path(model_dir) / "config.json").string()));
  ASSIGN_OR_RETURN(const auto weights, Weights::Open(model_dir));
  base::Sha256 digest;
  digest.UpdateField(config);
  for (const std::string& name : weights->names()) {
    const TensorView& view = *weights->Find(name);
    digest.UpdateField(name);
    digest.UpdateField(Name(view.dtype));
    digest.UpdateField(ShapeText(view.shape));
  }
  return base::ToHex(digest.Finish());
}

}  // namespace tessera::weights
