#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "services/vision/connector/tensor_source.h"
#include "services/vision/tower/tower_config.h"

namespace tessera::vision {

// A CLIP tower's weights on the device, under the names and in the shapes of published files. Dies
// before the backend.
struct ClipTowerWeights {
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

  // The layers that `config` runs, and no more. NOT_FOUND or INVALID_ARGUMENT names the tensor.
  static absl::StatusOr<ClipTowerWeights> Load(const TowerConfig& config, TensorSource& tensors,
                                               kernels::Backend& backend);

  std::string prefix;                         // of the names of these tensors
  kernels::DeviceMatrix patch;                // [hidden, patch_values]
  kernels::DeviceBuffer class_row, position;  // [1, hidden], [sequence, hidden]
  Norm pre_norm;
  std::vector<Layer> layers;
};

}  // namespace tessera::vision
