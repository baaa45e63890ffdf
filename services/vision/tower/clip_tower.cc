#include "services/vision/tower/clip_tower.h"

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/tower/clip_tower_pass.h"

namespace tessera::vision {
namespace {

using kernels::Activation;
using kernels::DeviceView;

// Patches of one picture f32 [3, size, size] in reading order, each as (channel, y, x): out is
// [patches, patch_values].
void LayOutPatches(const TowerConfig& config, const TensorView& picture, float* out) {
  const int64_t size = config.image_size, side = config.patch_size;
  const auto* pixels = reinterpret_cast<const float*>(picture.data);
  for (int64_t row = 0; row < config.grid(); ++row) {
    for (int64_t col = 0; col < config.grid(); ++col) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t y = 0; y < side; ++y) {
          const float* from = pixels + (channel * size + row * side + y) * size + col * side;
          out = std::copy(from, from + side, out);
        }
      }
    }
  }
}

}  // namespace

ClipTower::ClipTower(const TowerConfig& config, kernels::Backend& backend)
    : config_(config), backend_(backend), buffers_(std::make_unique<Buffers>()) {}
ClipTower::~ClipTower() = default;

ClipTower::Pass::Pass(const TowerConfig& config, const Buffers& buffers,
                      absl::Span<const TensorView> pictures)
    : pictures(static_cast<int64_t>(pictures.size())) {
  const int64_t count = this->pictures, sequence = config.sequence(), rows_each = config.rows();
  const int64_t first_row = config.keep_class_row ? 0 : 1;
  patches.resize(static_cast<size_t>(count * config.patches() * config.patch_values()));
  segments.push_back(0);
  for (int64_t i = 0; i < count; ++i) {
    LayOutPatches(config, pictures[static_cast<size_t>(i)],
                  patches.data() + i * config.patches() * config.patch_values());
    class_from.push_back(0);
    class_to.push_back(static_cast<int32_t>(i * sequence));
    for (int64_t t = 0; t < sequence; ++t) position.push_back(static_cast<int32_t>(t));
    for (int64_t r = 0; r < rows_each; ++r) {
      feature_from.push_back(static_cast<int32_t>(i * sequence + first_row + r));
      feature_to.push_back(static_cast<int32_t>(i * rows_each + r));
    }
    segments.push_back(static_cast<int32_t>((i + 1) * sequence));
  }
  const int64_t tokens = count * sequence, hidden = config.hidden_size;
  patch = View(buffers.patches, count * config.patches(), config.patch_values());
  x = View(buffers.x, tokens, hidden);
  h = View(buffers.h, tokens, hidden);
  q = View(buffers.q, tokens, hidden);
  k = View(buffers.k, tokens, hidden);
  v = View(buffers.v, tokens, hidden);
  mlp = View(buffers.mlp, tokens, config.intermediate_size);
  const ConnectorConfig& connector = config.connector;
  features = View(buffers.features, count * rows_each, connector.input_width);
  between = View(buffers.between, count * rows_each, connector.output_width);
  rows = View(buffers.rows, count * rows_each, connector.output_width);
}

absl::StatusOr<std::vector<Tensor>> ClipTower::Encode(absl::Span<const TensorView> pictures) {
  RETURN_IF_ERROR(CheckPictures(pictures));
  RETURN_IF_ERROR(Reserve(static_cast<int64_t>(pictures.size())));
  Pass pass(config_, *buffers_, pictures);
  Embed(pass);
  KeepFeatures(0, pass);
  RETURN_IF_ERROR(TapStates("embed", pass));
  for (size_t i = 0; i < layers_.size(); ++i) {
    RunLayer(layers_[i], pass);
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

absl::Status ClipTower::Reserve(int64_t pictures) {
  if (pictures <= buffers_->pictures) return absl::OkStatus();
  *buffers_ = Buffers();  // the old ones go first: both at once may not fit
  const int64_t tokens = pictures * config_.sequence(), hidden = config_.hidden_size;
  const int64_t rows = pictures * config_.rows();
  const ConnectorConfig& connector = config_.connector;
  const std::pair<kernels::DeviceBuffer*, int64_t> wanted[] = {
      {&buffers_->patches, pictures * config_.patches() * config_.patch_values()},
      {&buffers_->x, tokens * hidden},
      {&buffers_->h, tokens * hidden},
      {&buffers_->q, tokens * hidden},
      {&buffers_->k, tokens * hidden},
      {&buffers_->v, tokens * hidden},
      {&buffers_->mlp, tokens * config_.intermediate_size},
      {&buffers_->features, rows * connector.input_width},
      {&buffers_->between, rows * connector.output_width},
      {&buffers_->rows, rows * connector.output_width},
  };
  for (const auto& [buffer, elements] : wanted) {
    ASSIGN_OR_RETURN(*buffer, backend_.Allocate(elements));
  }
  buffers_->pictures = pictures;
  return absl::OkStatus();
}

void ClipTower::Embed(Pass& pass) {
  backend_.Upload({DType::kF32,
                   {pass.patch.rows, pass.patch.cols},
                   reinterpret_cast<const std::byte*>(pass.patches.data())},
                  pass.patch);
  const int64_t patches = config_.patches(), sequence = config_.sequence();
  for (int64_t i = 0; i < pass.pictures; ++i) {
    const DeviceView out = pass.x.Rows(i * sequence + 1, patches);
    pass.products.push_back({{{&patch_weight_, nullptr, out}}});
    backend_.MatMul({pass.patch.Rows(i * patches, patches),
                     absl::MakeConstSpan(pass.products.back().data(), 1), Activation::kNone,
                     false});
  }
  const int64_t hidden = config_.hidden_size;
  backend_.CopyRows(View(class_row_, 1, hidden), pass.class_from, pass.x, pass.class_to);
  backend_.AddRows(pass.x, View(position_, sequence, hidden), pass.position);
  backend_.LayerNorm(pass.x, pre_norm_.weight, pre_norm_.bias, config_.layer_norm_epsilon, pass.x);
}

void ClipTower::RunLayer(const Layer& layer, Pass& pass) {
  const float epsilon = config_.layer_norm_epsilon;
  backend_.LayerNorm(pass.x, layer.norm1.weight, layer.norm1.bias, epsilon, pass.h);
  Attend(layer, pass);
  backend_.LayerNorm(pass.x, layer.norm2.weight, layer.norm2.bias, epsilon, pass.h);
  const auto product = [&](DeviceView in, const Linear& linear, DeviceView out,
                           Activation activation, bool add) {
    pass.products.push_back({{{&linear.weight, &linear.bias, out}}});
    backend_.MatMul({in, absl::MakeConstSpan(pass.products.back().data(), 1), activation, add});
  };
  product(pass.h, layer.fc1, pass.mlp, config_.activation, false);
  product(pass.mlp, layer.fc2, pass.x, Activation::kNone, true);
}

// x += out_proj(attention(h)); h is overwritten.
void ClipTower::Attend(const Layer& layer, Pass& pass) {
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

void ClipTower::KeepFeatures(int hidden_state, Pass& pass) {
  const int64_t hidden = config_.hidden_size;
  for (size_t i = 0; i < config_.feature_layers.size(); ++i) {
    if (config_.feature_layers[i] != hidden_state) continue;
    backend_.CopyRows(pass.x, pass.feature_from,
                      pass.features.Cols(static_cast<int64_t>(i) * hidden, hidden),
                      pass.feature_to);
  }
}

absl::Status ClipTower::TapStates(absl::string_view name, const Pass& pass) {
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
