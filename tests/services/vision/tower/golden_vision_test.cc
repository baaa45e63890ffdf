// GoldenVision: pictures of the golden models from their files to rows, on every backend.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/compute_pool.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/tower/clip_tower.h"
#include "tests/support/deferred_backend.h"
#include "tests/support/golden_case.h"
#include "tests/support/golden_pixels.h"

namespace tessera::vision {
namespace {

using testing::GoldenCase;
using testing::GoldenModel;

// Of their own spread, as the goldens' README says; a right one lands near 1e-5.
constexpr double kTolerance = 1e-3;
constexpr double kSuspicious = 1e-4;

struct Device {
  std::unique_ptr<base::ComputePool> pool;
  std::unique_ptr<kernels::Backend> backend;
};

Device MakeDevice(const std::string& name, int threads) {
  Device device;
  device.pool = std::make_unique<base::ComputePool>(threads);
  const bool deferred = name == "deferred";
  device.backend = kernels::CreateBackend(deferred ? "reference" : name, *device.pool).value();
  if (deferred) device.backend = testing::MakeDeferredBackend(std::move(device.backend));
  return device;
}

std::unique_ptr<ClipTower> LoadTower(const std::string& dir, const TowerConfig& config,
                                     kernels::Backend& backend) {
  const auto weights = weights::Weights::Open(dir).value();
  TensorSource tensors(*weights);
  return ClipTower::Create(config, tensors, backend).value();
}

TensorView ViewOf(const std::vector<float>& pixels, const TowerConfig& config) {
  return {DType::kF32,
          {3, config.image_size, config.image_size},
          reinterpret_cast<const std::byte*>(pixels.data())};
}

// Distance from the golden in units of its spread.
double Distance(absl::Span<const float> got, const TensorView& golden) {
  const std::vector<float> expected = ToFloats(golden);
  return testing::LargestDifference(got, expected) / testing::StandardDeviation(expected);
}

void ExpectNear(double distance, const std::string& what) {
  EXPECT_LE(distance, kTolerance) << what;
  if (distance > kSuspicious) std::printf("look into %s: %.2e\n", what.c_str(), distance);
}

// All layers are run, so that each hidden state of the golden is seen.
void CheckHiddenStates(const GoldenModel& model, const GoldenCase& golden, TowerConfig config,
                       const std::vector<float>& pixels, kernels::Backend& backend) {
  config.feature_layers = std::vector<int>(config.feature_layers.size(), config.layers);
  const auto tower = LoadTower(model.dir, config, backend);
  std::vector<std::string> seen;
  tower->SetTap([&](absl::string_view name, size_t, const Tensor& states) {
    const TensorView* expected = model.Find(golden, absl::StrCat("hidden.vision.", name));
    ASSERT_NE(expected, nullptr) << name;
    EXPECT_EQ(states.shape(), expected->shape);
    ExpectNear(Distance(states.f32(), *expected),
               absl::StrCat(model.name, "/", golden.id, " hidden ", name));
    seen.push_back(std::string(name));
  });
  ASSERT_TRUE(tower->Encode({ViewOf(pixels, config)}).ok());
  EXPECT_EQ(seen.size(), static_cast<size_t>(config.layers) + 1);
}

struct Counts {
  int models = 0, cases = 0, rows = 0, hidden = 0;
};

void RunModel(const GoldenModel& model, const std::string& device_name, Counts& counts) {
  const VisionConfig config = LoadVisionConfig(model.dir).value();
  const Device device = MakeDevice(device_name, 2);
  const auto tower = LoadTower(model.dir, config.tower, *device.backend);
  ++counts.models;
  for (const GoldenCase& golden : model.cases) {
    SCOPED_TRACE(absl::StrCat(model.name, "/", golden.id, " on ", device_name));
    ++counts.cases;
    std::vector<std::vector<float>> pixels;
    for (size_t i = 0; i < golden.images.size(); ++i) {
      pixels.push_back(testing::PixelsOf(model, golden, i, config));
    }
    if (const TensorView* expected = model.Find(golden, "image_rows")) {
      std::vector<TensorView> pictures;
      for (const auto& picture : pixels) pictures.push_back(ViewOf(picture, config.tower));
      std::vector<float> got;
      const std::vector<Tensor> encoded = tower->Encode(pictures).value();
      for (const Tensor& rows : encoded) {
        got.insert(got.end(), rows.f32().begin(), rows.f32().end());
      }
      const double distance = Distance(got, *expected);
      std::printf("%s/%s on %s: rows %.2e\n", model.name.c_str(), golden.id.c_str(),
                  device_name.c_str(), distance);
      ExpectNear(distance, "rows");
      ++counts.rows;
    }
    if (model.Find(golden, "hidden.vision.embed") != nullptr) {
      CheckHiddenStates(model, golden, config.tower, pixels[0], *device.backend);
      ++counts.hidden;
    }
  }
}

class GoldenVision : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenVision, RowsAndHiddenStatesEqualTheReference) {
  Counts counts;
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  for (const GoldenModel& model : *models) RunModel(model, GetParam(), counts);
  std::printf("GoldenVision on %s: %d cases of %d models ran; rows of %d, hidden states of %d\n",
              GetParam().c_str(), counts.cases, counts.models, counts.rows, counts.hidden);
  EXPECT_GT(counts.rows, 0);
}

TEST_P(GoldenVision, BitsDoNotDependOnBatchMatesOrThreads) {
  const auto models = testing::FindGoldenModels();
  ASSERT_TRUE(models.ok()) << models.status();
  for (const GoldenModel& model : *models) {
    SCOPED_TRACE(model.name);
    const VisionConfig config = LoadVisionConfig(model.dir).value();
    std::vector<std::vector<float>> pixels;
    for (const GoldenCase& golden : model.cases) {
      for (size_t i = 0; i < golden.images.size() && pixels.size() < 4; ++i) {
        if (!pixels.empty() && model.Find(golden, "image_rows") == nullptr) continue;
        pixels.push_back(testing::PixelsOf(model, golden, i, config));
      }
    }
    ASSERT_FALSE(pixels.empty());
    pixels.push_back(std::vector<float>(pixels[0].size(), 2.5f));  // very different from the rest
    const Device one = MakeDevice(GetParam(), 1), two = MakeDevice(GetParam(), 2);
    const auto tower = LoadTower(model.dir, config.tower, *one.backend);
    const auto threaded = LoadTower(model.dir, config.tower, *two.backend);
    std::vector<Tensor> alone;
    for (const auto& picture : pixels) {
      alone.push_back(std::move(tower->Encode({ViewOf(picture, config.tower)}).value()[0]));
    }
    std::vector<TensorView> reversed;
    for (auto it = pixels.rbegin(); it != pixels.rend(); ++it) {
      reversed.push_back(ViewOf(*it, config.tower));
    }
    for (ClipTower* any : {tower.get(), threaded.get()}) {
      const std::vector<Tensor> together = any->Encode(reversed).value();
      for (size_t i = 0; i < alone.size(); ++i) {
        const Tensor& mate = together[alone.size() - 1 - i];
        EXPECT_EQ(std::memcmp(alone[i].bytes().data(), mate.bytes().data(), mate.bytes().size()), 0)
            << "picture " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GoldenVision, ::testing::Values("reference", "cpu", "deferred"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::vision
