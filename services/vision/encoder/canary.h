#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/tensor/tensor.h"
#include "common/weights/canary_file.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/tower/vision_tower.h"

// Vision's part of the canary: a drawn picture and its rows. The caller's thread uses the tower.
namespace tessera::vision {

// The picture, encoded, and what the tower makes of it and of a grey one of its size.
struct CanaryRows {
  std::string picture;     // a BMP; the same on every call
  Tensor rows, grey_rows;  // f32 [rows, width]
};

// To be written down. Errors are the tower's.
absl::StatusOr<CanaryRows> DrawCanary(const VisionConfig& config, VisionTower& tower);

// How far a row may be off, as RelativeError has it.
double CanaryBound(DType compute_dtype, DType record_dtype);

// The largest distance between a row and its expectation, over the norm of the latter, or over the
// root mean square of all norms where that is larger: a row of next to nothing may be off by more
// of itself. REQUIRES: equal shapes [rows, width].
double RelativeError(const Tensor& rows, const Tensor& expected);

// Encodes the canary's picture, makes a record's rows of it and compares. FAILED_PRECONDITION:
// CANARY_BLIND when a grey picture gets the same rows, CANARY_FAILED when they are others than
// those of the reference or preprocessing is another, both in words for /readyz.
absl::Status CheckCanary(const weights::Canary& canary, const VisionConfig& config,
                         VisionTower& tower, DType compute_dtype, DType record_dtype);

}  // namespace tessera::vision
