#include "services/vision/tower/clip_tower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/compute_pool.h"
#include "common/base/error.h"
#include "kernels/create/create.h"
#include "tests/support/tiny_models.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;
using testing::NamedHostTensor;
using testing::TempDir;
using testing::TinyModelOptions;

Tensor Copy(const TensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  std::copy(view.data, view.data + view.bytes(), tensor.bytes().data());
  return tensor;
}

class ClipTowerTest : public ::testing::Test {
 protected:
  ClipTowerTest() : backend_(kernels::CreateBackend("reference", pool_).value()) {}

  absl::StatusOr<std::unique_ptr<ClipTower>> Load(const std::string& dir) {
    auto config = LoadTowerConfig(dir);
    if (!config.ok()) return config.status();
    weights_ = weights::Weights::Open(dir).value();
    TensorSource tensors(*weights_);
    auto tower = ClipTower::Create(*config, tensors, *backend_);
    if (tower.ok()) unused_ = tensors.Unused((*tower)->prefixes());
    return tower;
  }

  static std::vector<float> Picture(const TowerConfig& config) {
    std::vector<float> pixels(static_cast<size_t>(3 * config.image_size * config.image_size));
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 25;
    }
    return pixels;
  }

  static std::vector<float> Rows(ClipTower& tower) {
    const TowerConfig& config = tower.config();
    const std::vector<float> pixels = Picture(config);
    const TensorView view{DType::kF32,
                          {3, config.image_size, config.image_size},
                          reinterpret_cast<const std::byte*>(pixels.data())};
    const Tensor rows = std::move(tower.Encode({view}).value()[0]);
    EXPECT_EQ(rows.shape(), (Shape{config.rows(), config.width()}));
    return {rows.f32().begin(), rows.f32().end()};
  }

  // The model in `dir` with every tensor handed to `change`; one file.
  static void Rewrite(const std::string& dir, const std::string& to,
                      const std::function<void(std::vector<NamedHostTensor>&)>& change) {
    const auto weights = weights::Weights::Open(dir).value();
    std::vector<NamedHostTensor> tensors;
    for (const std::string& name : weights->names()) {
      tensors.push_back({name, Copy(*weights->Find(name))});
    }
    change(tensors);
    testing::WriteSafetensors(absl::StrCat(to, "/model.safetensors"), tensors);
  }

  base::ComputePool pool_{1};
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<weights::Weights> weights_;
  std::vector<std::string> unused_;
};

TEST_F(ClipTowerTest, EveryGenerationOfNamesGivesTheSameRows) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const std::vector<float> expected = Rows(*Load(dir.path()).value());
  const auto known = weights::Weights::Open(dir.path()).value();
  for (const char* tower : {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                            "model.vision_tower.", "vision_tower."}) {
    for (const char* connector : {"multi_modal_projector.", "model.multi_modal_projector."}) {
      TempDir renamed;
      testing::WriteTinyModel(renamed.path(), {});
      Rewrite(dir.path(), renamed.path(), [&](std::vector<NamedHostTensor>& tensors) {
        for (NamedHostTensor& tensor : tensors) {
          const auto rename = [&tensor](absl::string_view part, absl::string_view prefix) {
            const size_t at = tensor.name.find(std::string(part));
            if (at != std::string::npos) tensor.name = absl::StrCat(prefix, tensor.name.substr(at));
          };
          if (absl::StrContains(tensor.name, "language_model")) continue;
          rename("embeddings.", tower);
          rename("pre_layrnorm.", tower);
          rename("encoder.layers.", tower);
          rename("post_layernorm.", tower);
          rename("linear_", connector);
        }
      });
      EXPECT_EQ(Rows(*Load(renamed.path()).value()), expected) << tower << " " << connector;
    }
  }
}

TEST_F(ClipTowerTest, FeatureLayersAreJoinedInTheOrderOfTheList) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const auto rows_of = [&](base::Json layers, int place, int places) {
    TempDir joined;
    TinyModelOptions options;
    options.vision_feature_layer = layers;
    testing::WriteTinyModel(joined.path(), options);
    // The connector of the plain model, fed from one of the joined layers.
    Rewrite(dir.path(), joined.path(), [&](std::vector<NamedHostTensor>& tensors) {
      for (NamedHostTensor& tensor : tensors) {
        if (!absl::EndsWith(tensor.name, "linear_1.weight")) continue;
        const int64_t out = tensor.tensor.shape()[0], in = tensor.tensor.shape()[1];
        Tensor wide(DType::kF32, {out, in * places});
        for (int64_t r = 0; r < out; ++r) {
          for (int64_t c = 0; c < in; ++c) {
            wide.f32()[static_cast<size_t>((r * places + place) * in + c)] =
                tensor.tensor.f32()[static_cast<size_t>(r * in + c)];
          }
        }
        tensor.tensor = std::move(wide);
      }
    });
    return Rows(*Load(joined.path()).value());
  };
  const auto last = rows_of(-1, 0, 1), first = rows_of(0, 0, 1), second = rows_of(-2, 0, 1);
  EXPECT_NE(last, first);
  EXPECT_NE(last, second);
  EXPECT_EQ(rows_of({-1, 0, -2}, 0, 3), last);
  EXPECT_EQ(rows_of({-1, 0, -2}, 1, 3), first);
  EXPECT_EQ(rows_of({-1, 0, -2}, 2, 3), second);
}

TEST_F(ClipTowerTest, FullKeepsTheClassRowInFront) {
  TempDir dir, full;
  testing::WriteTinyModel(dir.path(), {});
  TinyModelOptions options;
  options.vision_feature_select_strategy = "full";
  testing::WriteTinyModel(full.path(), options);
  const auto without = Rows(*Load(dir.path()).value());
  const auto tower = Load(full.path()).value();
  const auto with = Rows(*tower);
  const auto width = static_cast<std::ptrdiff_t>(tower->config().width());
  EXPECT_EQ(std::vector<float>(with.begin() + width, with.end()), without);
}

TEST_F(ClipTowerTest, AMissingTensorIsNamed) {
  TempDir dir;
  TinyModelOptions options;
  options.omit = {"vision_tower.vision_model.encoder.layers.1.mlp.fc2.bias"};
  testing::WriteTinyModel(dir.path(), options);
  const absl::Status status = Load(dir.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ReasonOf(status), "TENSOR_MISSING");
  EXPECT_THAT(std::string(status.message()), HasSubstr(options.omit[0]));
}

TEST_F(ClipTowerTest, NanInAnyTensorThatIsUsedIsRefusedWithItsName) {
  TempDir whole;
  TinyModelOptions options;
  options.dtype = DType::kF16;
  options.vision_layers = 2;  // the default feature layer leaves the last one out
  testing::WriteTinyModel(whole.path(), options);
  ASSERT_TRUE(Load(whole.path()).ok());
  const std::set<std::string> unused(unused_.begin(), unused_.end());
  const std::vector<std::string> names = weights_->names();
  int refused = 0;
  for (const std::string& name : names) {
    if (absl::StrContains(name, "language_model")) continue;
    TempDir dir;
    options.nan_tensor = name;
    testing::WriteTinyModel(dir.path(), options);
    const absl::Status status = Load(dir.path()).status();
    EXPECT_EQ(status.ok(), unused.count(name) == 1) << name << " " << status;
    if (status.ok()) continue;
    EXPECT_EQ(base::ReasonOf(status), "WEIGHTS_NONFINITE") << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    ++refused;
  }
  EXPECT_EQ(refused, 5 + 16 + 4);
}

TEST_F(ClipTowerTest, AModelWithoutATowerNamesTheNamesItTried) {
  TempDir dir;
  TinyModelOptions options;
  options.omit = {"vision_tower.vision_model.embeddings.class_embedding"};
  testing::WriteTinyModel(dir.path(), options);
  EXPECT_THAT(std::string(Load(dir.path()).status().message()),
              AllOf(HasSubstr(options.omit[0]), HasSubstr("model.vision_tower.")));
}

TEST_F(ClipTowerTest, AWrongShapeIsNamedWithBothShapes) {
  TempDir dir;
  TinyModelOptions options;
  options.more_tensors = {{"multi_modal_projector.linear_1.weight", {32, 31}}};
  testing::WriteTinyModel(dir.path(), options);
  const absl::Status status = Load(dir.path()).status();
  EXPECT_EQ(base::ReasonOf(status), "TENSOR_SHAPE");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("linear_1.weight"), HasSubstr("[32, 31]"), HasSubstr("[32, 32]")));
}

TEST_F(ClipTowerTest, TensorsThatNobodyAsksForAreListed) {
  TempDir dir;
  TinyModelOptions options;
  options.more_tensors = {{"vision_tower.vision_model.embeddings.odd", {2}}};
  testing::WriteTinyModel(dir.path(), options);
  ASSERT_TRUE(Load(dir.path()).ok());
  EXPECT_THAT(unused_, ::testing::Contains("vision_tower.vision_model.embeddings.odd"));
  for (const std::string& name : unused_) {
    EXPECT_FALSE(absl::StrContains(name, "layers.0.")) << name;
    EXPECT_FALSE(absl::StrContains(name, "language_model")) << name;
  }
}

TEST_F(ClipTowerTest, APictureOfAnotherSizeIsRefused) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const auto tower = Load(dir.path()).value();
  const Tensor picture(DType::kF32, {3, 14, 28});
  const absl::Status status = tower->Encode({picture.view()}).status();
  EXPECT_EQ(base::ReasonOf(status), "PICTURE_SHAPE");
  EXPECT_THAT(std::string(status.message()), HasSubstr("[3, 14, 28]"));
}

}  // namespace
}  // namespace tessera::vision
