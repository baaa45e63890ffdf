#pragma once

#include <vector>

#include "services/vision/encoder/row_plan.h"
#include "tests/support/golden_case.h"

namespace tessera::testing {

// What the tower gets for picture `index` of a golden case: f32 [3, height, width], made from the
// file through the real decoder and preprocessing. Adds gtest failures where rows or pixels differ
// from the golden. Where the format leaves room (JPEG, alpha) another decoder may differ by a step:
// then the golden's own pixels are the answer, so that what follows is compared with nothing else
// changed. Aborts when the file cannot be read.
std::vector<float> PixelsOf(const GoldenModel& model, const GoldenCase& golden, size_t index,
                            const vision::VisionConfig& config);

}  // namespace tessera::testing
