#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/json.h"
#include "kernels/backend.h"
#include "services/vision/connector/mlp_connector.h"

namespace tessera::vision {

// A CLIP vision transformer and what is taken from it, read from a LLaVA model's config.json.
struct TowerConfig {
  int64_t hidden_size = 768;
  int64_t intermediate_size = 3072;
  int layers = 12;  // in the model; fewer are run when no feature layer needs the last ones
  int heads = 12;
  int64_t image_size = 224;  // pixels a side
  int64_t patch_size = 32;   // pixels a side
  float layer_norm_epsilon = 1e-5f;
  kernels::Activation activation = kernels::Activation::kQuickGelu;

  // Hidden states whose columns are joined, in this order: 0 is the embedding, n the output of
  // layer n (1-based). Never empty; each in [0, layers].
  std::vector<int> feature_layers;
  bool keep_class_row = false;  // vision_feature_select_strategy "full"

  ConnectorConfig connector;

  int64_t grid() const { return image_size / patch_size; }  // patches a side
  int64_t patches() const { return grid() * grid(); }
  int64_t sequence() const { return patches() + 1; }  // with the class row
  int64_t patch_values() const { return 3 * patch_size * patch_size; }
  int64_t head_dim() const { return hidden_size / heads; }
  int64_t rows() const { return keep_class_row ? sequence() : patches(); }  // of a picture
  int64_t width() const { return connector.output_width; }                  // of a row
  int layers_run() const;  // the deepest feature layer

  // Every value that changes a row, as text: part of the identity of rows.
  std::string Canonical() const;
};

// Settings that a file leaves out have the defaults of its published class. INVALID_ARGUMENT
// (reason CONFIG_INVALID or CONFIG_UNSUPPORTED) names key, value and what is supported. Pure.
absl::StatusOr<TowerConfig> ParseTowerConfig(const base::Json& config);

// ParseTowerConfig of `model_dir`/config.json; errors name the path.
absl::StatusOr<TowerConfig> LoadTowerConfig(const std::string& model_dir);

}  // namespace tessera::vision
