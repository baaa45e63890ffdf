#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/vision/tower/clip_tower.h"
#include "services/vision/tower/clip_tower_pass.h"

// Names of tensors, and how they become device memory.
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

}  // namespace

absl::StatusOr<std::unique_ptr<ClipTower>> ClipTower::Create(const TowerConfig& config,
                                                             TensorSource& tensors,
                                                             kernels::Backend& backend) {
  auto tower = std::unique_ptr<ClipTower>(new ClipTower(config, backend));
  ASSIGN_OR_RETURN(tower->prefix_, tensors.FindPrefix(kPrefixes, "embeddings.class_embedding"));
  RETURN_IF_ERROR(tower->LoadEmbeddings(tensors));
  for (int i = 0; i < config.layers_run(); ++i) {
    ASSIGN_OR_RETURN(Layer layer, tower->LoadLayer(tensors, i));
    tower->layers_.push_back(std::move(layer));
  }
  ASSIGN_OR_RETURN(tower->connector_, MlpConnector::Create(config.connector, tensors, backend));
  RETURN_IF_ERROR(tower->Reserve(1));
  return tower;
}

absl::Status ClipTower::LoadEmbeddings(TensorSource& tensors) {
  const int64_t hidden = config_.hidden_size;
  const std::string stem = absl::StrCat(prefix_, "embeddings.");
  ASSIGN_OR_RETURN(const TensorView row,
                   tensors.Get(absl::StrCat(stem, "class_embedding"), {hidden}));
  ASSIGN_OR_RETURN(class_row_, UploadRows(row, 1, hidden, backend_));
  ASSIGN_OR_RETURN(
      const TensorView position,
      tensors.Get(absl::StrCat(stem, "position_embedding.weight"), {config_.sequence(), hidden}));
  ASSIGN_OR_RETURN(position_, UploadRows(position, config_.sequence(), hidden, backend_));
  const int64_t side = config_.patch_size;
  ASSIGN_OR_RETURN(TensorView patch, tensors.Get(absl::StrCat(stem, "patch_embedding.weight"),
                                                 {hidden, 3, side, side}));
  patch.shape = {hidden, config_.patch_values()};  // a convolution without overlap is a product
  ASSIGN_OR_RETURN(patch_weight_, backend_.LoadMatrix(patch));
  ASSIGN_OR_RETURN(pre_norm_, LoadNorm(tensors, "pre_layrnorm"));  // sic
  return absl::OkStatus();
}

absl::StatusOr<ClipTower::Layer> ClipTower::LoadLayer(TensorSource& tensors, int index) {
  const int64_t hidden = config_.hidden_size;
  const auto name = [index](absl::string_view part) {
    return absl::StrCat("encoder.layers.", index, ".", part);
  };
  Layer layer;
  ASSIGN_OR_RETURN(layer.norm1, LoadNorm(tensors, name("layer_norm1")));
  ASSIGN_OR_RETURN(layer.norm2, LoadNorm(tensors, name("layer_norm2")));
  const std::pair<absl::string_view, Linear*> square[] = {
      {"q_proj", &layer.q}, {"k_proj", &layer.k}, {"v_proj", &layer.v}, {"out_proj", &layer.out}};
  for (const auto& [part, linear] : square) {
    ASSIGN_OR_RETURN(*linear,
                     LoadLinear(tensors, name(absl::StrCat("self_attn.", part)), hidden, hidden));
  }
  const int64_t inner = config_.intermediate_size;
  ASSIGN_OR_RETURN(layer.fc1, LoadLinear(tensors, name("mlp.fc1"), inner, hidden));
  ASSIGN_OR_RETURN(layer.fc2, LoadLinear(tensors, name("mlp.fc2"), hidden, inner));
  return layer;
}

absl::StatusOr<ClipTower::Linear> ClipTower::LoadLinear(TensorSource& tensors,
                                                        absl::string_view name, int64_t out,
                                                        int64_t in) {
  Linear linear;
  ASSIGN_OR_RETURN(const TensorView weight,
                   tensors.Get(absl::StrCat(prefix_, name, ".weight"), {out, in}));
  ASSIGN_OR_RETURN(linear.weight, backend_.LoadMatrix(weight));
  ASSIGN_OR_RETURN(const TensorView bias, tensors.Get(absl::StrCat(prefix_, name, ".bias"), {out}));
  ASSIGN_OR_RETURN(linear.bias, backend_.LoadVector(bias));
  return linear;
}

absl::StatusOr<ClipTower::Norm> ClipTower::LoadNorm(TensorSource& tensors, absl::string_view name) {
  Norm norm;
  ASSIGN_OR_RETURN(const TensorView weight,
                   tensors.Get(absl::StrCat(prefix_, name, ".weight"), {config_.hidden_size}));
  ASSIGN_OR_RETURN(norm.weight, backend_.LoadVector(weight));
  ASSIGN_OR_RETURN(const TensorView bias,
                   tensors.Get(absl::StrCat(prefix_, name, ".bias"), {config_.hidden_size}));
  ASSIGN_OR_RETURN(norm.bias, backend_.LoadVector(bias));
  return norm;
}

}  // namespace tessera::vision
