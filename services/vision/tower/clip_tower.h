#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/vision/connector/mlp_connector.h"
#include "services/vision/connector/tensor_source.h"
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
  std::vector<std::string> prefixes() const { return {prefix_, connector_->prefix()}; }

 private:
  struct Norm {
    kernels::DeviceVector weight, bias;  // [hidden]
  };
  struct Linear {
    kernels::DeviceMatrix weight;  // [out, in]
    kernels::DeviceVector bias;    // [out]
  };
  struct Layer {
    Norm norm1, norm2;
    Linear q, k, v, out, fc1, fc2;
  };
  struct Buffers;  // activations for some number of pictures
  struct Pass;     // one Encode: what its ops point to until Synchronize

  ClipTower(const TowerConfig& config, kernels::Backend& backend);
  absl::Status LoadEmbeddings(TensorSource& tensors);
  absl::StatusOr<Layer> LoadLayer(TensorSource& tensors, int index);
  absl::StatusOr<Linear> LoadLinear(TensorSource& tensors, absl::string_view name, int64_t out,
                                    int64_t in);
  absl::StatusOr<Norm> LoadNorm(TensorSource& tensors, absl::string_view name);

  absl::Status CheckPictures(absl::Span<const TensorView> pictures) const;
  absl::Status Reserve(int64_t pictures);
  void Embed(Pass& pass);
  void RunLayer(const Layer& layer, Pass& pass);
  void Attend(const Layer& layer, Pass& pass);
  void KeepFeatures(int hidden_state, Pass& pass);
  absl::Status TapStates(absl::string_view name, const Pass& pass);

  const TowerConfig config_;
  kernels::Backend& backend_;
  std::string prefix_;
  kernels::DeviceMatrix patch_weight_;          // [hidden, patch_values]
  kernels::DeviceBuffer class_row_, position_;  // [1, hidden], [sequence, hidden]
  Norm pre_norm_;
  std::vector<Layer> layers_;
  std::unique_ptr<MlpConnector> connector_;
  std::unique_ptr<Buffers> buffers_;
  Tap tap_;

 public:
  ~ClipTower() override;
};

}  // namespace tessera::vision
