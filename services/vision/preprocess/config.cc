#include "services/vision/preprocess/config.h"

#include <cmath>
#include <cstdio>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

using base::Json;

constexpr int kMaxSide = 2048;  // of a model's input, pixels
constexpr size_t kMaxValueText = 80;
// Of what pixels are multiplied with, and of what is taken away and divided by: means and
// deviations are in 0 to 1, or in 0 to 255 where nothing is rescaled. Beyond that f32 inputs lose
// their meaning.
struct Span {
  double least, most;
};
constexpr Span kFactors = {1e-6, 1};
constexpr Span kMeans = {-1000, 1000};
constexpr Span kDeviations = {1e-6, 1000};
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};

// What a processor does where its file is silent. All three families share filter, rescaling, mean
// and deviation.
struct Family {
  absl::string_view name;  // image_processor_type without "Fast" and "Pil"
  int side;
  bool square;  // a bare size means both sides, else the shortest edge
  bool center_crop;
  bool can_pad;
};
constexpr Family kFamilies[] = {
    {"CLIPImageProcessor", 224, false, true, false},
    {"CLIPFeatureExtractor", 224, false, true, false},
    {"LlavaImageProcessor", 224, false, true, true},
    {"BlipImageProcessor", 384, true, false, false},
};

std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMaxValueText) text = text.substr(0, kMaxValueText) + "...";
  return text;
}

absl::Status Refused(absl::string_view reason, absl::string_view key, const Json& value,
                     absl::string_view expected) {
  return base::BadField(key, reason,
                        absl::StrCat(key, " is ", Shown(value), "; supported: ", expected));
}
absl::Status Bad(absl::string_view key, const Json& value, absl::string_view expected) {
  return Refused("MODEL_CONFIG_BAD", key, value, expected);
}
absl::Status Unsupported(absl::string_view key, const Json& value, absl::string_view expected) {
  return Refused("MODEL_UNSUPPORTED", key, value, expected);
}

// Null means absent, as in Python.
const Json* Find(const Json& object, absl::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<bool> ReadBool(const Json& json, absl::string_view key, bool absent) {
  const Json* value = Find(json, key);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) return Bad(key, *value, "true or false");
  return value->get<bool>();
}

absl::StatusOr<int> ReadSide(const Json& value, absl::string_view key) {
  const std::string expected = absl::StrCat("a whole number from 1 to ", kMaxSide);
  if (!value.is_number_integer()) return Bad(key, value, expected);
  const int64_t side = value.get<int64_t>();
  if (side < 1 || side > kMaxSide) return Bad(key, value, expected);
  return static_cast<int>(side);
}

bool IsIn(const Json& value, const Span& span) {
  return value.is_number() && value.get<double>() >= span.least && value.get<double>() <= span.most;
}

absl::StatusOr<std::array<double, 3>> ReadTriple(const Json& json, absl::string_view key,
                                                 const Span& span,
                                                 const std::array<double, 3>& absent) {
  const Json* value = Find(json, key);
  if (value == nullptr) return absent;
  const std::string expected = absl::StrCat("three numbers from ", span.least, " to ", span.most);
  if (!value->is_array() || value->size() != 3) return Bad(key, *value, expected);
  std::array<double, 3> triple;
  for (size_t i = 0; i < 3; ++i) {
    if (!IsIn((*value)[i], span)) return Bad(key, *value, expected);
    triple[i] = (*value)[i].get<double>();
  }
  return triple;
}

absl::StatusOr<Family> ReadFamily(const Json& json, std::string& type) {
  std::vector<absl::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  const std::string expected = absl::StrJoin(names, ", ");
  absl::string_view key = "image_processor_type";
  const Json* value = Find(json, key);
  if (value == nullptr && Find(json, "feature_extractor_type") != nullptr) {
    key = "feature_extractor_type";
    value = Find(json, key);
  }
  if (value == nullptr) return Unsupported(key, Json(), expected);
  if (!value->is_string()) return Bad(key, *value, expected);
  type = value->get<std::string>();
  absl::string_view name = type;
  for (absl::string_view suffix : {"Fast", "Pil"}) {
    if (absl::EndsWith(name, suffix)) name.remove_suffix(suffix.size());
  }
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
  }
  return Unsupported(key, *value, expected);
}

// Switches of other processors must not be passed over in silence.
absl::Status CheckForeignKeys(const Json& json, const Family& family) {
  static constexpr const char* kKnownSwitches[] = {"do_resize", "do_center_crop", "do_rescale",
                                                   "do_normalize", "do_convert_rgb"};
  for (const auto& [key, value] : json.items()) {
    if (value.is_null() || value == Json(false)) continue;
    bool known = key == "do_pad" && family.can_pad;
    for (const char* name : kKnownSwitches) known = known || key == name;
    if (absl::StartsWith(key, "do_") && !known) return Unsupported(key, value, "false");
    if (key == "crop_to_patches") return Unsupported(key, value, "false");
    if (key == "image_grid_pinpoints" || key == "pad_size" || key == "size_divisor") {
      return Unsupported(key, value, "no such key");
    }
    if (key == "data_format" && value != Json("channels_first")) {
      return Unsupported(key, value, "\"channels_first\"");
    }
  }
  return absl::OkStatus();
}

absl::Status ReadExactSize(const Json& size, absl::string_view key, int& height, int& width) {
  const Json* height_value = Find(size, "height");
  const Json* width_value = Find(size, "width");
  if (height_value == nullptr || width_value == nullptr) {
    return Bad(key, size, "an object with height and width");
  }
  ASSIGN_OR_RETURN(height, ReadSide(*height_value, absl::StrCat(key, ".height")));
  ASSIGN_OR_RETURN(width, ReadSide(*width_value, absl::StrCat(key, ".width")));
  return absl::OkStatus();
}

absl::Status ReadSize(const Json& size, const Family& family, PreprocessConfig& config) {
  using Resize = PreprocessConfig::Resize;
  config.resize = family.square ? Resize::kExact : Resize::kShortestEdge;
  if (!size.is_object()) {
    ASSIGN_OR_RETURN(config.shortest_edge, ReadSide(size, "size"));
    config.resize_height = config.resize_width = config.shortest_edge;
    return absl::OkStatus();
  }
  if (Find(size, "longest_edge") != nullptr) {
    return Unsupported("size", size, "shortest_edge, or height and width");
  }
  const Json* shortest = Find(size, "shortest_edge");
  if (shortest != nullptr) {
    if (family.square) return Unsupported("size", size, "height and width");
    ASSIGN_OR_RETURN(config.shortest_edge, ReadSide(*shortest, "size.shortest_edge"));
    return absl::OkStatus();
  }
  config.resize = Resize::kExact;
  return ReadExactSize(size, "size", config.resize_height, config.resize_width);
}

absl::Status ReadResize(const Json& json, const Family& family, PreprocessConfig& config) {
  ASSIGN_OR_RETURN(const bool resize, ReadBool(json, "do_resize", true));
  if (!resize) return absl::OkStatus();
  const Json* size = Find(json, "size");
  RETURN_IF_ERROR(ReadSize(size != nullptr ? *size : Json(family.side), family, config));
  const Json* resample = Find(json, "resample");
  if (resample == nullptr) return absl::OkStatus();
  constexpr char kExpected[] = "1 (Lanczos), 2 (bilinear), 3 (bicubic)";
  if (!resample->is_number_integer()) return Bad("resample", *resample, kExpected);
  const int64_t number = resample->get<int64_t>();
  if (number < 1 || number > 3) return Unsupported("resample", *resample, kExpected);
  config.filter = static_cast<Filter>(number);
  return absl::OkStatus();
}

absl::Status ReadCrop(const Json& json, const Family& family, PreprocessConfig& config) {
  ASSIGN_OR_RETURN(config.center_crop, ReadBool(json, "do_center_crop", family.center_crop));
  if (!config.center_crop) return absl::OkStatus();
  if (!family.center_crop) return Unsupported("do_center_crop", Json(true), "false");
  const Json* size = Find(json, "crop_size");
  if (size == nullptr || !size->is_object()) {
    ASSIGN_OR_RETURN(config.crop_height,
                     ReadSide(size != nullptr ? *size : Json(family.side), "crop_size"));
    config.crop_width = config.crop_height;
    return absl::OkStatus();
  }
  return ReadExactSize(*size, "crop_size", config.crop_height, config.crop_width);
}

absl::Status ReadNumbers(const Json& json, PreprocessConfig& config) {
  ASSIGN_OR_RETURN(config.rescale, ReadBool(json, "do_rescale", true));
  if (const Json* factor = Find(json, "rescale_factor"); factor != nullptr) {
    if (!IsIn(*factor, kFactors)) {
      return Bad("rescale_factor", *factor,
                 absl::StrCat("a number from ", kFactors.least, " to ", kFactors.most));
    }
    config.rescale_factor = factor->get<double>();
  }
  ASSIGN_OR_RETURN(config.normalize, ReadBool(json, "do_normalize", true));
  ASSIGN_OR_RETURN(config.mean, ReadTriple(json, "image_mean", kMeans, kClipMean));
  ASSIGN_OR_RETURN(config.std, ReadTriple(json, "image_std", kDeviations, kClipStd));
  return absl::OkStatus();
}

absl::Status ReadPadding(const Json& json, PreprocessConfig& config) {
  ASSIGN_OR_RETURN(config.pad_to_square, ReadBool(json, "do_pad", false));
  if (!config.pad_to_square) return absl::OkStatus();
  for (size_t c = 0; c < 3; ++c) {
    const double color = std::trunc(config.mean[c] * 255);
    if (color < 0 || color > 255) return Bad("image_mean", json["image_mean"], "numbers in 0 to 1");
    config.pad_color[c] = static_cast<uint8_t>(color);
  }
  return absl::OkStatus();
}

std::string Number(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

absl::StatusOr<PreprocessConfig> PreprocessConfig::FromJson(const base::Json& json) {
  if (!json.is_object()) {
    return base::Error(absl::StatusCode::kInvalidArgument, "MODEL_CONFIG_BAD",
                       "the settings for pictures are no JSON object");
  }
  PreprocessConfig config;
  ASSIGN_OR_RETURN(const Family family, ReadFamily(json, config.type));
  RETURN_IF_ERROR(CheckForeignKeys(json, family));
  RETURN_IF_ERROR(ReadBool(json, "do_convert_rgb", true).status());
  RETURN_IF_ERROR(ReadResize(json, family, config));
  RETURN_IF_ERROR(ReadCrop(json, family, config));
  RETURN_IF_ERROR(ReadNumbers(json, config));
  RETURN_IF_ERROR(ReadPadding(json, config));
  return config;
}

absl::StatusOr<PreprocessConfig> PreprocessConfig::Load(const std::string& model_dir) {
  const std::string processor_path = absl::StrCat(model_dir, "/processor_config.json");
  absl::StatusOr<Json> processor = base::ReadJsonFile(processor_path);
  if (!processor.ok() && !absl::IsNotFound(processor.status())) return processor.status();
  if (processor.ok() && processor->is_object()) {
    if (const Json* nested = Find(*processor, "image_processor"); nested != nullptr) {
      absl::StatusOr<PreprocessConfig> config = FromJson(*nested);
      if (config.ok()) return config;
      return base::Annotate(config.status(), absl::StrCat(processor_path, ": image_processor"));
    }
  }
  const std::string path = absl::StrCat(model_dir, "/preprocessor_config.json");
  ASSIGN_OR_RETURN(const Json json, base::ReadJsonFile(path));
  absl::StatusOr<PreprocessConfig> config = FromJson(json);
  if (!config.ok()) return base::Annotate(config.status(), path);
  return config;
}

std::string PreprocessConfig::Canonical() const {
  // "pixels=1": the rules of decoding and resampling; raise it when one of them changes.
  std::string text = "pixels=1 alpha=255,255,255";
  if (pad_to_square) {
    absl::StrAppendFormat(&text, " pad=%d,%d,%d", pad_color[0], pad_color[1], pad_color[2]);
  }
  if (resize == Resize::kShortestEdge) {
    absl::StrAppend(&text, " shortest=", shortest_edge, " filter=", static_cast<int>(filter));
  } else if (resize == Resize::kExact) {
    absl::StrAppend(&text, " exact=", resize_height, "x", resize_width,
                    " filter=", static_cast<int>(filter));
  }
  if (center_crop) absl::StrAppend(&text, " crop=", crop_height, "x", crop_width);
  if (rescale) absl::StrAppend(&text, " rescale=", Number(rescale_factor));
  if (normalize) {
    for (size_t c = 0; c < 3; ++c) {
      absl::StrAppend(&text, " norm", c, "=", Number(mean[c]), ",", Number(std[c]));
    }
  }
  return text;
}

}  // namespace tessera::vision
