#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/vision/connector/mlp_connector.h"
#include "services/vision/connector/tensor_source.h"
#include "services/vision/tower/clip_tower_pass.h"
#include "services/vision/tower/clip_tower_weights.h"
#include "services/vision/tower/tower_config.h"
#include "services/vision/tower/vision_tower.h"

namespace tessera::vision {

// CLIP's vision transformer (arXiv 2103.00020, section 2.4) as LLaVA uses it (arXiv 2310.03744),
// with its connector. Runs the layers that the feature layers need; no post-LayerNorm.
class ClipTower final : public VisionTower {
 public:
  // Sees hidden states f32 [sequence, hidden] of one picture: "embed" (after class row, positions
  // and pre-LayerNorm), then "0", "1", ... after each layer. For tests.
  using Tap = std::function<void(absl::string_view name, size_t picture, const Tensor& states)>;

  // Reads the weights through `tensors`, which may go afterwards. `backend` outlives the result.
  static absl::StatusOr<std::unique_ptr<ClipTower>> Create(const TowerConfig& config,
                                                           TensorSource& tensors,
                                                           kernels::Backend& backend);

  absl::StatusOr<std::vector<Tensor>> Encode(absl::Span<const TensorView> pictures) override;

  void SetTap(Tap tap) { tap_ = std::move(tap); }
  const TowerConfig& config() const { return config_; }
  // What the names of tower and connector tensors begin with in these files.
  std::vector<std::string> prefixes() const { return {weights_.prefix, connector_->prefix()}; }

 private:
  ClipTower(const TowerConfig& config, kernels::Backend& backend)
      : config_(config), backend_(backend) {}
  absl::Status CheckPictures(absl::Span<const TensorView> pictures) const;
  void Embed(TowerPass& pass);
  void RunLayer(const ClipTowerWeights::Layer& layer, TowerPass& pass);
  void Attend(const ClipTowerWeights::Layer& layer, TowerPass& pass);
  void KeepFeatures(int hidden_state, TowerPass& pass);
  absl::Status TapStates(absl::string_view name, const TowerPass& pass);

  const TowerConfig config_;
  kernels::Backend& backend_;
  ClipTowerWeights weights_;
  std::unique_ptr<MlpConnector> connector_;
  TowerBuffers buffers_;
  Tap tap_;
};

}  // namespace tessera::vision
