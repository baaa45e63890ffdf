#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/tensor/tensor.h"

namespace tessera::vision {

// Preprocessed pictures to rows of the decoder. Used by one thread, the owner of its backend.
class VisionTower {
 public:
  virtual ~VisionTower() = default;

  // pictures: f32 [3, height, width] each, all of one shape, at least one. The result has one f32
  // [rows, width] per picture, in their order; a picture's rows do not depend on the others (equal
  // to the bit on reference and CPU). INVALID_ARGUMENT for a shape that the tower does not take,
  // RESOURCE_EXHAUSTED without memory for so many, INTERNAL when the device failed.
  virtual absl::StatusOr<std::vector<Tensor>> Encode(absl::Span<const TensorView> pictures) = 0;
};

}  // namespace tessera::vision
