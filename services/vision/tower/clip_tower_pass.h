#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "services/vision/tower/tower_config.h"

// What one pass of ClipTower lives on.
namespace tessera::vision {

// Activations for up to `pictures` pictures.
struct TowerBuffers {
  // Makes room for so many; what is there already stays. RESOURCE_EXHAUSTED without memory.
  absl::Status Reserve(const TowerConfig& config, int64_t pictures, kernels::Backend& backend);

  int64_t pictures = 0;
  kernels::DeviceBuffer patches;        // [pictures * patches, patch_values]
  kernels::DeviceBuffer x, h, q, k, v;  // [pictures * sequence, hidden]
  kernels::DeviceBuffer mlp;            // [pictures * sequence, intermediate]
  kernels::DeviceBuffer features;       // [pictures * rows, connector input]
  kernels::DeviceBuffer between, rows;  // [pictures * rows, connector output]
};

// Views and host memory that ops of one Encode point to until Synchronize.
struct TowerPass {
  // REQUIRES: `buffers` for that many pictures; they outlive it.
  TowerPass(const TowerConfig& config, const TowerBuffers& buffers,
            absl::Span<const TensorView> pictures);

  int64_t pictures;
  std::vector<float> patches;                 // [pictures * patches, patch_values]
  std::vector<int32_t> class_from, class_to;  // [pictures]
  std::vector<int32_t> position;              // [pictures * sequence]
  std::vector<int32_t> feature_from;          // [pictures * rows], rows of x
  std::vector<int32_t> feature_to;            // [pictures * rows]
  std::vector<int32_t> segments;              // [pictures + 1]
  std::deque<std::array<kernels::MatMulOut, 3>> products;

  // [pictures * sequence, ...]; `patch` is [pictures * patches, patch_values].
  kernels::DeviceView patch, x, h, q, k, v, mlp;
  kernels::DeviceView features, between, rows;  // [pictures * rows, ...]
};

}  // namespace tessera::vision
