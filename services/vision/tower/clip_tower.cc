#include "services/vision/tower/clip_tower.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

using kernels::Activation;
using kernels::DeviceView;

}  // namespace

absl::StatusOr<std::unique_ptr<ClipTower>> ClipTower::Create(const TowerConfig& config,
                                                             TensorSource& tensors,
                                                             kernels::Backend& backend) {
  auto tower = std::unique_ptr<ClipTower>(new ClipTower(config, backend));
  ASSIGN_OR_RETURN(tower->weights_, ClipTowerWeights::Load(config, tensors, backend));
  ASSIGN_OR_RETURN(tower->connector_, MlpConnector::Create(config.connector, tensors, backend));
  RETURN_IF_ERROR(tower->buffers_.Reserve(config, 1, backend));
  return tower;
}

absl::StatusOr<std::vector<Tensor>> ClipTower::Encode(absl::Span<const TensorView> pictures) {
  RETURN_IF_ERROR(CheckPictures(pictures));
  RETURN_IF_ERROR(buffers_.Reserve(config_, static_cast<int64_t>(pictures.size()), backend_));
  TowerPass pass(config_, buffers_, pictures);
  Embed(pass);
  KeepFeatures(0, pass);
  RETURN_IF_ERROR(TapStates("embed", pass));
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    RunLayer(weights_.layers[i], pass);
    KeepFeatures(static_cast<int>(i) + 1, pass);
    RETURN_IF_ERROR(TapStates(absl::StrCat(i), pass));
  }
  connector_->Run(pass.features, pass.between, pass.rows);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < pass.pictures; ++i) {
    rows.emplace_back(DType::kF32, Shape{config_.rows(), config_.width()});
    backend_.Download(pass.rows.Rows(i * config_.rows(), config_.rows()), rows.back().f32());
  }
  RETURN_IF_ERROR(backend_.Synchronize());
  return rows;
}

absl::Status ClipTower::CheckPictures(absl::Span<const TensorView> pictures) const {
  CHECK(!pictures.empty());
  const Shape shape = {3, config_.image_size, config_.image_size};
  for (const TensorView& picture : pictures) {
    CHECK(picture.dtype == DType::kF32);
    if (picture.shape != shape) {
      return base::Error(absl::StatusCode::kInvalidArgument, "PICTURE_SHAPE",
                         absl::StrCat("a picture is ", ShapeText(picture.shape),
                                      " after preprocessing, the tower takes ", ShapeText(shape)));
    }
  }
  return absl::OkStatus();
}

void ClipTower::Embed(TowerPass& pass) {
  backend_.Upload({DType::kF32,
                   {pass.patch.rows, pass.patch.cols},
                   reinterpret_cast<const std::byte*>(pass.patches.data())},
                  pass.patch);
  const int64_t patches = config_.patches(), sequence = config_.sequence();
  for (int64_t i = 0; i < pass.pictures; ++i) {
    const DeviceView out = pass.x.Rows(i * sequence + 1, patches);
    pass.products.push_back({{{&weights_.patch, nullptr, out}}});
    backend_.MatMul({pass.patch.Rows(i * patches, patches),
                     absl::MakeConstSpan(pass.products.back().data(), 1), Activation::kNone,
                     false});
  }
  const int64_t hidden = config_.hidden_size;
  backend_.CopyRows(View(weights_.class_row, 1, hidden), pass.class_from, pass.x, pass.class_to);
  backend_.AddRows(pass.x, View(weights_.position, sequence, hidden), pass.position);
  backend_.LayerNorm(pass.x, weights_.pre_norm.weight, weights_.pre_norm.bias,
                     config_.layer_norm_epsilon, pass.x);
}

void ClipTower::RunLayer(const ClipTowerWeights::Layer& layer, TowerPass& pass) {
  const float epsilon = config_.layer_norm_epsilon;
  backend_.LayerNorm(pass.x, layer.norm1.weight, layer.norm1.bias, epsilon, pass.h);
  Attend(layer, pass);
  backend_.LayerNorm(pass.x, layer.norm2.weight, layer.norm2.bias, epsilon, pass.h);
  const auto product = [&](DeviceView in, const ClipTowerWeights::Linear& linear, DeviceView out,
                           Activation activation, bool add) {
    pass.products.push_back({{{&linear.weight, &linear.bias, out}}});
    backend_.MatMul({in, absl::MakeConstSpan(pass.products.back().data(), 1), activation, add});
  };
  product(pass.h, layer.fc1, pass.mlp, config_.activation, false);
  product(pass.mlp, layer.fc2, pass.x, Activation::kNone, true);
}

// x += out_proj(attention(h)); h is overwritten.
void ClipTower::Attend(const ClipTowerWeights::Layer& layer, TowerPass& pass) {
  pass.products.push_back({{{&layer.q.weight, &layer.q.bias, pass.q},
                            {&layer.k.weight, &layer.k.bias, pass.k},
                            {&layer.v.weight, &layer.v.bias, pass.v}}});
  backend_.MatMul({pass.h, pass.products.back(), Activation::kNone, false});
  kernels::PackedAttentionParams attention;
  attention.q = pass.q;
  attention.k = pass.k;
  attention.v = pass.v;
  attention.out = pass.h;
  attention.heads = config_.heads;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim()));
  attention.query_begin = pass.segments;
  attention.key_begin = pass.segments;
  backend_.PackedAttention(attention);
  pass.products.push_back({{{&layer.out.weight, &layer.out.bias, pass.x}}});
  backend_.MatMul(
      {pass.h, absl::MakeConstSpan(pass.products.back().data(), 1), Activation::kNone, true});
}

void ClipTower::KeepFeatures(int hidden_state, TowerPass& pass) {
  const int64_t hidden = config_.hidden_size;
  for (size_t i = 0; i < config_.feature_layers.size(); ++i) {
    if (config_.feature_layers[i] != hidden_state) continue;
    backend_.CopyRows(pass.x, pass.feature_from,
                      pass.features.Cols(static_cast<int64_t>(i) * hidden, hidden),
                      pass.feature_to);
  }
}

absl::Status ClipTower::TapStates(absl::string_view name, const TowerPass& pass) {
  if (!tap_) return absl::OkStatus();
  for (int64_t i = 0; i < pass.pictures; ++i) {
    Tensor states(DType::kF32, {config_.sequence(), config_.hidden_size});
    backend_.Download(pass.x.Rows(i * config_.sequence(), config_.sequence()), states.f32());
    RETURN_IF_ERROR(backend_.Synchronize());
    tap_(name, static_cast<size_t>(i), states);
  }
  return absl::OkStatus();
}

}  // namespace tessera::vision
