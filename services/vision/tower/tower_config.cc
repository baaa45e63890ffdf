#include "services/vision/tower/tower_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "services/vision/connector/activation_name.h"

namespace tessera::vision {
namespace {

using base::Json;

constexpr int64_t kMaxSize = 1 << 20;    // of any extent: keeps products far from overflow
constexpr int64_t kMaxImageSize = 2048;  // pixels a side, as of preprocessing
constexpr int64_t kMaxGrid = 256;        // patches a side
constexpr double kMinEpsilon = 1e-12;    // a row of equal numbers stays finite

std::string Clipped(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 80) text = absl::StrCat(text.substr(0, 80), "...");
  return text;
}

absl::Status Unsupported(absl::string_view key, const Json& value, absl::string_view supported) {
  return base::BadField(key, "CONFIG_UNSUPPORTED",
                        absl::StrCat("config.json: ", key, " = ", Clipped(value),
                                     " is not supported; supported: ", supported));
}

// One JSON object and where it stands, with defaults for keys that are absent or null.
class Reader {
 public:
  Reader(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

  std::string Key(absl::string_view key) const { return absl::StrCat(path_, key); }
  const Json* Find(absl::string_view key) const {
    const auto it = object_.find(std::string(key));
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  absl::StatusOr<int64_t> Integer(absl::string_view key, int64_t fallback) const {
    const Json* value = Find(key);
    if (value == nullptr) return fallback;
    const bool fits = value->is_number_integer() && *value >= 1 && *value <= kMaxSize;
    if (!fits) return Unsupported(Key(key), *value, absl::StrCat("an integer in 1..", kMaxSize));
    return value->get<int64_t>();
  }

  absl::StatusOr<std::string> Text(absl::string_view key, absl::string_view fallback) const {
    const Json* value = Find(key);
    if (value == nullptr) return std::string(fallback);
    if (!value->is_string()) return Unsupported(Key(key), *value, "a string");
    return value->get<std::string>();
  }

  absl::StatusOr<kernels::Activation> Act(absl::string_view key, absl::string_view fallback) const {
    ASSIGN_OR_RETURN(const std::string name, Text(key, fallback));
    const auto activation = ActivationNamed(name);
    if (!activation) return Unsupported(Key(key), Json(name), ActivationNames());
    return *activation;
  }

 private:
  const Json& object_;
  const std::string path_;
};

// LlavaConfig without a vision_config is CLIP ViT-L/14 at 336 pixels.
Json DefaultVisionConfig() {
  return {{"hidden_size", 1024},       {"intermediate_size", 4096}, {"num_hidden_layers", 24},
          {"num_attention_heads", 16}, {"image_size", 336},         {"patch_size", 14}};
}

absl::Status ReadTower(const Reader& vision, TowerConfig& tower) {
  ASSIGN_OR_RETURN(const std::string type, vision.Text("model_type", "clip_vision_model"));
  if (type != "clip_vision_model") {
    return Unsupported(vision.Key("model_type"), Json(type), "\"clip_vision_model\"");
  }
  ASSIGN_OR_RETURN(const int64_t channels, vision.Integer("num_channels", 3));
  if (channels != 3) return Unsupported(vision.Key("num_channels"), Json(channels), "3");
  ASSIGN_OR_RETURN(tower.hidden_size, vision.Integer("hidden_size", tower.hidden_size));
  ASSIGN_OR_RETURN(tower.intermediate_size,
                   vision.Integer("intermediate_size", tower.intermediate_size));
  ASSIGN_OR_RETURN(const int64_t layers, vision.Integer("num_hidden_layers", tower.layers));
  if (layers > 1000) return Unsupported(vision.Key("num_hidden_layers"), Json(layers), "1..1000");
  tower.layers = static_cast<int>(layers);
  ASSIGN_OR_RETURN(const int64_t heads, vision.Integer("num_attention_heads", tower.heads));
  tower.heads = static_cast<int>(heads);
  if (tower.hidden_size % heads != 0) {
    return Unsupported(vision.Key("num_attention_heads"), Json(heads),
                       absl::StrCat("a divisor of hidden_size ", tower.hidden_size));
  }
  ASSIGN_OR_RETURN(tower.activation, vision.Act("hidden_act", "quick_gelu"));
  ASSIGN_OR_RETURN(tower.image_size, vision.Integer("image_size", tower.image_size));
  ASSIGN_OR_RETURN(tower.patch_size, vision.Integer("patch_size", tower.patch_size));
  if (tower.patch_size > tower.image_size || tower.image_size > kMaxImageSize) {
    return Unsupported(vision.Key("image_size"), Json(tower.image_size),
                       absl::StrCat("patch_size ", tower.patch_size, " to ", kMaxImageSize));
  }
  if (tower.grid() > kMaxGrid) {
    return Unsupported(
        vision.Key("patch_size"), Json(tower.patch_size),
        absl::StrCat("at most ", kMaxGrid, " patches a side of ", tower.image_size, " pixels"));
  }
  if (const Json* epsilon = vision.Find("layer_norm_eps")) {
    const bool good = epsilon->is_number() && *epsilon >= kMinEpsilon && *epsilon <= 1;
    if (!good) {
      return Unsupported(vision.Key("layer_norm_eps"), *epsilon,
                         absl::StrCat("a number in ", kMinEpsilon, "..1"));
    }
    tower.layer_norm_epsilon = epsilon->get<float>();
  }
  return absl::OkStatus();
}

absl::StatusOr<int> FeatureLayer(const Json& value, int layers) {
  const bool good = value.is_number_integer() && value >= -layers - 1 && value <= layers;
  if (!good) {
    return Unsupported(
        "vision_feature_layer", value,
        absl::StrCat("an integer in ", -layers - 1, "..", layers, ", or a list of such"));
  }
  const int layer = value.get<int>();
  return layer < 0 ? layers + 1 + layer : layer;
}

absl::Status ReadFeatures(const Reader& top, TowerConfig& tower) {
  const Json fallback = -2;
  const Json* layers = top.Find("vision_feature_layer");
  if (layers == nullptr) layers = &fallback;
  if (layers->is_array()) {
    if (layers->empty() || layers->size() > 64) {
      return Unsupported("vision_feature_layer", *layers, "a list of 1 to 64 layers");
    }
    for (const Json& entry : *layers) {
      ASSIGN_OR_RETURN(const int layer, FeatureLayer(entry, tower.layers));
      tower.feature_layers.push_back(layer);
    }
  } else {
    ASSIGN_OR_RETURN(const int layer, FeatureLayer(*layers, tower.layers));
    tower.feature_layers.push_back(layer);
  }
  ASSIGN_OR_RETURN(const std::string strategy,
                   top.Text("vision_feature_select_strategy", "default"));
  if (strategy != "default" && strategy != "full") {
    return Unsupported("vision_feature_select_strategy", Json(strategy), "\"default\", \"full\"");
  }
  tower.keep_class_row = strategy == "full";
  return absl::OkStatus();
}

absl::Status ReadConnector(const Reader& top, const Reader& text, TowerConfig& tower) {
  ConnectorConfig& connector = tower.connector;
  connector.input_width = tower.hidden_size * static_cast<int64_t>(tower.feature_layers.size());
  ASSIGN_OR_RETURN(connector.output_width, text.Integer("hidden_size", 4096));
  ASSIGN_OR_RETURN(connector.activation, top.Act("projector_hidden_act", "gelu"));
  if (const Json* bias = top.Find("multimodal_projector_bias")) {
    if (!bias->is_boolean()) return Unsupported("multimodal_projector_bias", *bias, "true, false");
    connector.bias = bias->get<bool>();
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Section(const Json& config, const char* key, Json fallback) {
  const auto it = config.find(key);
  if (it == config.end() || it->is_null()) return fallback;
  if (!it->is_object()) return Unsupported(key, *it, "an object");
  return *it;
}

}  // namespace

int TowerConfig::layers_run() const {
  return *std::max_element(feature_layers.begin(), feature_layers.end());
}

std::string TowerConfig::Canonical() const {
  return absl::StrCat("clip-vit;hidden=", hidden_size, ";mlp=", intermediate_size, ";heads=", heads,
                      ";image=", image_size, ";patch=", patch_size, ";eps=", layer_norm_epsilon,
                      ";act=", static_cast<int>(activation),
                      ";features=", absl::StrJoin(feature_layers, ","), ";class=", keep_class_row,
                      ";projector=mlp2,", connector.output_width, ",",
                      static_cast<int>(connector.activation), ",", connector.bias);
}

absl::StatusOr<TowerConfig> ParseTowerConfig(const Json& config) {
  if (!config.is_object()) {
    return base::Error(absl::StatusCode::kInvalidArgument, "CONFIG_INVALID",
                       "config.json: not an object");
  }
  const Reader top(config, "");
  ASSIGN_OR_RETURN(const std::string type, top.Text("model_type", ""));
  if (type != "llava") return Unsupported("model_type", Json(type), "\"llava\"");
  ASSIGN_OR_RETURN(const Json vision, Section(config, "vision_config", DefaultVisionConfig()));
  ASSIGN_OR_RETURN(const Json text, Section(config, "text_config", Json::object()));
  TowerConfig tower;
  RETURN_IF_ERROR(ReadTower(Reader(vision, "vision_config."), tower));
  RETURN_IF_ERROR(ReadFeatures(top, tower));
  RETURN_IF_ERROR(ReadConnector(top, Reader(text, "text_config."), tower));
  return tower;
}

absl::StatusOr<TowerConfig> LoadTowerConfig(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  ASSIGN_OR_RETURN(const Json config, base::ReadJsonFile(path));
  auto tower = ParseTowerConfig(config);
  if (!tower.ok()) return base::Annotate(tower.status(), path);
  return tower;
}

}  // namespace tessera::vision
