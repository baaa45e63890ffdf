#include "services/vision/encoder/row_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/error.h"
#include "tests/support/tiny_models.h"

namespace tessera::vision {
namespace {

using testing::TempDir;
using testing::WriteTinyModel;

TEST(RowPlan, RowsFollowFromTheHeaderAlone) {
  TempDir dir;
  WriteTinyModel(dir.path(), {});
  const VisionConfig config = LoadVisionConfig(dir.path()).value();
  for (const auto& [width, height] : {std::pair(1, 1), std::pair(4000, 30), std::pair(28, 28)}) {
    ImageHeader header;
    header.width = header.stored_width = width;
    header.height = header.stored_height = height;
    const auto plan = PlanRows(header, config);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->rows, 4);
    EXPECT_EQ(plan->grid_height, 2);
    EXPECT_EQ(plan->grid_width, 2);
  }
}

TEST(RowPlan, PreprocessingThatDoesNotFitTheTowerIsRefusedAtLoad) {
  TempDir dir;
  WriteTinyModel(dir.path(), {});
  testing::WriteText(dir.path() + "/preprocessor_config.json",
                     R"({"image_processor_type":"CLIPImageProcessor","size":{"shortest_edge":28},
                         "do_center_crop":false,"image_mean":[0.5,0.5,0.5],
                         "image_std":[0.5,0.5,0.5],"resample":3})");
  const auto config = LoadVisionConfig(dir.path());
  EXPECT_EQ(base::ReasonOf(config.status()), "CONFIG_UNSUPPORTED");
  EXPECT_THAT(std::string(config.status().message()),
              ::testing::AllOf(::testing::HasSubstr(dir.path()), ::testing::HasSubstr("28x28")));
}

}  // namespace
}  // namespace tessera::vision
