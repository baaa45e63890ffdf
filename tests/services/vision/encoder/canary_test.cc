#include "services/vision/encoder/canary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "absl/strings/match.h"
#include "common/base/compute_pool.h"
#include "common/base/error.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/vision/image/image.h"
#include "services/vision/tower/clip_tower.h"
#include "tests/support/edit_weights.h"
#include "tests/support/tiny_models.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;

// A tower of a model's directory.
struct Loaded {
  Loaded(const std::string& dir, const std::string& device) : config(*LoadVisionConfig(dir)) {
    backend = kernels::CreateBackend(device, pool).value();
    const auto weights = weights::Weights::Open(dir).value();
    TensorSource tensors(*weights);
    tower = ClipTower::Create(config.tower, tensors, *backend).value();
  }

  base::ComputePool pool{2};
  VisionConfig config;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<ClipTower> tower;
};

class VisionCanaryTest : public ::testing::Test {
 protected:
  VisionCanaryTest() { testing::WriteTinyModel(dir_.path(), {}); }

  weights::Canary Written() {
    Loaded model(dir_.path(), "reference");
    CanaryRows rows = DrawCanary(model.config, *model.tower).value();
    weights::Canary canary;
    canary.preprocessing = model.config.preprocess.Canonical();
    canary.picture = std::move(rows.picture);
    canary.rows = std::move(rows.rows);
    canary.grey_rows = std::move(rows.grey_rows);
    return canary;
  }
  absl::Status Check(const weights::Canary& canary, const std::string& device = "reference",
                     DType record = DType::kF16) {
    Loaded model(dir_.path(), device);
    return CheckCanary(canary, model.config, *model.tower, DType::kF32, record);
  }
  // What /readyz would say of the model once `edit` has been at the weights of some name.
  absl::Status After(const char* part, void (*edit)(Tensor&)) {
    const weights::Canary canary = Written();
    int edited = 0;
    testing::EditWeights(dir_.path(), [&](absl::string_view name, Tensor& tensor) {
      if (!absl::StrContains(name, part)) return;
      edit(tensor);
      ++edited;
    });
    EXPECT_GT(edited, 0) << part;
    return Check(canary);
  }

  testing::TempDir dir_;
};

TEST_F(VisionCanaryTest, AGoodModelPassesOnEveryDeviceAndInEveryRecord) {
  const weights::Canary canary = Written();
  for (const char* device : {"reference", "cpu"}) {
    for (const DType record : {DType::kF32, DType::kF16, DType::kI8}) {
      const absl::Status status = Check(canary, device, record);
      EXPECT_TRUE(status.ok()) << device << " " << Name(record) << ": " << status;
    }
  }
}

TEST_F(VisionCanaryTest, ThePictureIsTheSameEachTimeAndNoGrey) {
  const weights::Canary canary = Written();
  EXPECT_EQ(Written().picture, canary.picture);
  const auto image = DecodeImage(canary.picture, {});
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->width, 96);
  EXPECT_GT(RelativeError(canary.rows, canary.grey_rows), 0.05);
}

TEST_F(VisionCanaryTest, AProjectorOfZerosIsBlind) {
  const absl::Status status = After("multi_modal_projector.linear_2.weight", testing::Zero);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_BLIND");
  EXPECT_THAT(std::string(status.message()), HasSubstr("blind"));
}

TEST_F(VisionCanaryTest, OneFlippedMatrixIsNoticed) {
  const absl::Status status = After("layers.1.self_attn.v_proj.weight", testing::Flip);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_FAILED") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("bound"));
}

TEST_F(VisionCanaryTest, AWeightThatIsNoNumberIsNoticed) {
  const absl::Status status = After("multi_modal_projector.linear_2.bias", [](Tensor& tensor) {
    tensor.f32()[0] = 3e38f;
    tensor.f32()[1] = -3e38f;
  });
  EXPECT_EQ(base::ReasonOf(status), "CANARY_FAILED") << status;
}

TEST_F(VisionCanaryTest, OtherPreprocessingIsNamed) {
  weights::Canary canary = Written();
  canary.preprocessing += " mirrored";
  const absl::Status status = Check(canary);
  EXPECT_EQ(base::ReasonOf(status), "CANARY_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("mirrored"));
}

TEST_F(VisionCanaryTest, OtherShapesAreNamed) {
  weights::Canary canary = Written();
  canary.rows = Tensor(DType::kF32, {9, 32});
  EXPECT_THAT(std::string(Check(canary).message()), HasSubstr("[9, 32]"));
}

TEST(VisionCanaryBoundTest, ErrorsAreRelativeToTheRowOrToAllRows) {
  Tensor expected(DType::kF32, {2, 2}), rows(DType::kF32, {2, 2});
  const float wanted[] = {3, 4, 0, 0.001f}, got[] = {3, 4.5f, 0, 0.002f};
  std::copy_n(wanted, 4, expected.f32().begin());
  std::copy_n(got, 4, rows.f32().begin());
  EXPECT_NEAR(RelativeError(rows, expected), 0.1, 1e-6);
  EXPECT_EQ(RelativeError(expected, expected), 0);
  EXPECT_LT(CanaryBound(DType::kF32, DType::kF16), CanaryBound(DType::kF32, DType::kI8));
  EXPECT_LT(CanaryBound(DType::kF32, DType::kI8), CanaryBound(DType::kF16, DType::kI8));
}

}  // namespace
}  // namespace tessera::vision
