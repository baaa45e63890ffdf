#include "services/vision/tower/clip_tower_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
namespace tessera::vision {
namespace {

// As published; transformers 4.52 on; transformers 5, two ways.
constexpr absl::string_view kPrefixes[] = {"vision_tower.vision_model.",
                                           "model.vision_tower.vision_model.",
                                           "model.vision_tower.", "vision_tower."};

absl::StatusOr<kernels::DeviceBuffer> UploadRows(TensorView host, int64_t rows, int64_t cols,
                                                 kernels::Backend& backend) {
  ASSIGN_OR_RETURN(kernels::DeviceBuffer buffer, backend.Allocate(rows * cols));
  host.shape = {rows, cols};
  backend.Upload(host, kernels::View(buffer, rows, cols));
  RETURN_IF_ERROR(backend.Synchronize());
  return buffer;
}

using Norm = ClipTowerWeights::Norm;
using Linear = ClipTowerWeights::Linear;
using Layer = ClipTowerWeights::Layer;

class Loader {
 public:
  Loader(const TowerConfig& config, TensorSource& tensors, kernels::Backend& backend)
      : config_(config), tensors_(tensors), backend_(backend) {}

  absl::StatusOr<ClipTowerWeights> Load();

 private:
  absl::Status LoadEmbeddings(ClipTowerWeights& weights);
  absl::StatusOr<Layer> LoadLayer(int index);
  absl::StatusOr<Linear> LoadLinear(absl::string_view name, int64_t out, int64_t in);
  absl::StatusOr<Norm> LoadNorm(absl::string_view name);

  const TowerConfig& config_;
  TensorSource& tensors_;
  kernels::Backend& backend_;
  std::string prefix_;
};

absl::StatusOr<ClipTowerWeights> Loader::Load() {
  ClipTowerWeights weights;
  ASSIGN_OR_RETURN(prefix_, tensors_.FindPrefix(kPrefixes, "embeddings.class_embedding"));
  weights.prefix = prefix_;
  RETURN_IF_ERROR(LoadEmbeddings(weights));
  for (int i = 0; i < config_.layers_run(); ++i) {
    ASSIGN_OR_RETURN(Layer layer, LoadLayer(i));
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

absl::Status Loader::LoadEmbeddings(ClipTowerWeights& weights) {
  const int64_t hidden = config_.hidden_size;
  const std::string stem = absl::StrCat(prefix_, "embeddings.");
  ASSIGN_OR_RETURN(const TensorView row,
                   tensors_.Get(absl::StrCat(stem, "class_embedding"), {hidden}));
  ASSIGN_OR_RETURN(weights.class_row, UploadRows(row, 1, hidden, backend_));
  ASSIGN_OR_RETURN(
      const TensorView position,
      tensors_.Get(absl::StrCat(stem, "position_embedding.weight"), {config_.sequence(), hidden}));
  ASSIGN_OR_RETURN(weights.position, UploadRows(position, config_.sequence(), hidden, backend_));
  const int64_t side = config_.patch_size;
  ASSIGN_OR_RETURN(TensorView patch, tensors_.Get(absl::StrCat(stem, "patch_embedding.weight"),
                                                  {hidden, 3, side, side}));
  patch.shape = {hidden, config_.patch_values()};  // a convolution without overlap is a product
  ASSIGN_OR_RETURN(weights.patch, backend_.LoadMatrix(patch));
  ASSIGN_OR_RETURN(weights.pre_norm, LoadNorm("pre_layrnorm"));  // sic
  return absl::OkStatus();
}

absl::StatusOr<Layer> Loader::LoadLayer(int index) {
  const int64_t hidden = config_.hidden_size;
  const auto name = [index](absl::string_view part) {
    return absl::StrCat("encoder.layers.", index, ".", part);
  };
  Layer layer;
  ASSIGN_OR_RETURN(layer.norm1, LoadNorm(name("layer_norm1")));
  ASSIGN_OR_RETURN(layer.norm2, LoadNorm(name("layer_norm2")));
  const std::pair<absl::string_view, Linear*> square[] = {
      {"q_proj", &layer.q}, {"k_proj", &layer.k}, {"v_proj", &layer.v}, {"out_proj", &layer.out}};
  for (const auto& [part, linear] : square) {
    ASSIGN_OR_RETURN(*linear, LoadLinear(name(absl::StrCat("self_attn.", part)), hidden, hidden));
  }
  const int64_t inner = config_.intermediate_size;
  ASSIGN_OR_RETURN(layer.fc1, LoadLinear(name("mlp.fc1"), inner, hidden));
  ASSIGN_OR_RETURN(layer.fc2, LoadLinear(name("mlp.fc2"), hidden, inner));
  return layer;
}

absl::StatusOr<Linear> Loader::LoadLinear(absl::string_view name, int64_t out, int64_t in) {
  Linear linear;
  ASSIGN_OR_RETURN(const TensorView weight,
                   tensors_.Get(absl::StrCat(prefix_, name, ".weight"), {out, in}));
  ASSIGN_OR_RETURN(linear.weight, backend_.LoadMatrix(weight));
  ASSIGN_OR_RETURN(const TensorView bias,
                   tensors_.Get(absl::StrCat(prefix_, name, ".bias"), {out}));
  ASSIGN_OR_RETURN(linear.bias, backend_.LoadVector(bias));
  return linear;
}

absl::StatusOr<Norm> Loader::LoadNorm(absl::string_view name) {
  Norm norm;
  ASSIGN_OR_RETURN(const TensorView weight,
                   tensors_.Get(absl::StrCat(prefix_, name, ".weight"), {config_.hidden_size}));
  ASSIGN_OR_RETURN(norm.weight, backend_.LoadVector(weight));
  ASSIGN_OR_RETURN(const TensorView bias,
                   tensors_.Get(absl::StrCat(prefix_, name, ".bias"), {config_.hidden_size}));
  ASSIGN_OR_RETURN(norm.bias, backend_.LoadVector(bias));
  return norm;
}

}  // namespace

absl::StatusOr<ClipTowerWeights> ClipTowerWeights::Load(const TowerConfig& config,
                                                        TensorSource& tensors,
                                                        kernels::Backend& backend) {
  return Loader(config, tensors, backend).Load();
}

}  // namespace tessera::vision
