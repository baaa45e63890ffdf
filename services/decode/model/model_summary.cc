#include "services/decode/model/model_summary.h"

#include <memory>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/weights/weights.h"
#include "services/decode/model/tensor_names.h"

namespace tessera::decode {
namespace {

std::string ModelType(const base::Json& object) {
  auto type = object.find("model_type");
  return type != object.end() && type->is_string() ? type->get<std::string>() : "";
}

void Note(const absl::Status& status, ModelSummary& summary) {
  summary.unsupported.push_back(std::string(status.message()));
}

void CountTensors(const weights::Weights& weights, ModelSummary& summary) {
  std::set<std::string> types;
  for (const std::string& name : weights.names()) {
    const TensorView& view = *weights.Find(name);
    const int64_t count = NumElements(view.shape);
    switch (PartOf(name)) {
      case ModelPart::kDecoder:
        summary.decoder_parameters += count;
        break;
      case ModelPart::kVision:
        summary.vision_parameters += count;
        break;
      case ModelPart::kConnector:
        summary.connector_parameters += count;
        break;
      case ModelPart::kOther:
        summary.other_parameters += count;
        break;
    }
    summary.weight_bytes += static_cast<int64_t>(view.bytes());
    types.emplace(Name(view.dtype));
    ++summary.tensors;
  }
  summary.element_types.assign(types.begin(), types.end());
}

void CheckTensors(const weights::Weights& weights, ModelSummary& summary) {
  auto tensors = DecoderTensors::Find(weights, *summary.decoder);
  if (!tensors.ok()) return Note(tensors.status(), summary);
  summary.tied_head = tensors->tied;
  summary.unused_tensors = tensors->unused;
  summary.warnings.insert(summary.warnings.end(), tensors->warnings.begin(),
                          tensors->warnings.end());
}

}  // namespace

absl::StatusOr<ModelSummary> Inspect(const std::string& model_dir) {
  const std::string path = absl::StrCat(model_dir, "/config.json");
  ASSIGN_OR_RETURN(const base::Json json, base::ReadJsonFile(path));
  if (!json.is_object()) {
    return base::BadField("config.json", "MODEL_CONFIG_INVALID",
                          absl::StrCat(path, ": must hold an object"));
  }
  ModelSummary summary;
  summary.family = ModelType(json);
  if (auto text = json.find("text_config"); text != json.end() && text->is_object()) {
    summary.text_family = ModelType(*text);
  }
  auto config = DecoderConfig::Load(model_dir);
  if (config.ok()) {
    summary.text_family = config->text_family;
    summary.warnings = config->warnings;
    summary.kv_bytes_per_token_f16 = KvBytesPerToken(*config, DType::kF16);
    summary.kv_bytes_per_token_f32 = KvBytesPerToken(*config, DType::kF32);
    summary.kv_bytes_per_token_int8 = KvBytesPerToken(*config, DType::kI8);
    summary.decoder = *std::move(config);
  } else {
    Note(config.status(), summary);
  }
  auto weights = weights::Weights::Open(model_dir);
  if (!weights.ok()) {
    Note(weights.status(), summary);
    return summary;
  }
  CountTensors(**weights, summary);
  if (summary.decoder.has_value()) CheckTensors(**weights, summary);
  return summary;
}

}  // namespace tessera::decode
