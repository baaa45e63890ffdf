#include "tools/inspect.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "services/decode/model/model_summary.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/decode/template/chat_template.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/image/image.h"
#include "services/vision/image/quality.h"
#include "services/vision/preprocess/preprocess.h"

namespace tessera::tools {
namespace {

void PrintList(std::ostream& out, absl::string_view title, const std::vector<std::string>& items) {
  for (const std::string& item : items) {
    out << absl::StreamFormat("%-22s %s\n", title, item);
    title = "";
  }
}

void PrintDecoder(const decode::ModelSummary& model, std::ostream& out) {
  if (!model.decoder) return;
  const decode::DecoderConfig& d = *model.decoder;
  out << absl::StreamFormat(
      "%-22s %d layers, hidden %d, heads %d, kv heads %d, head size %d, feed-forward %d, "
      "vocabulary %d%s\n",
      "decoder", d.layers, d.hidden_size, d.heads, d.kv_heads, d.head_dim, d.intermediate_size,
      d.vocab_size, model.tied_head ? ", tied head" : "");
  out << absl::StreamFormat("%-22s %d tokens\n", "context", d.max_position_embeddings);
  out << absl::StreamFormat("%-22s %d f16, %d int8, %d f32\n", "KV bytes per token",
                            model.kv_bytes_per_token_f16, model.kv_bytes_per_token_int8,
                            model.kv_bytes_per_token_f32);
}

void PrintVision(const std::string& dir, std::vector<std::string>& unsupported, std::ostream& out) {
  const absl::StatusOr<vision::VisionConfig> config = vision::LoadVisionConfig(dir);
  if (!config.ok()) {
    unsupported.push_back(absl::StrCat("vision: ", config.status().message()));
    return;
  }
  const vision::TowerConfig& t = config->tower;
  out << absl::StreamFormat(
      "%-22s %d layers (%d run), hidden %d, heads %d, %d x %d pixels, patch %d\n", "tower",
      t.layers, t.layers_run(), t.hidden_size, t.heads, t.image_size, t.image_size, t.patch_size);
  out << absl::StreamFormat("%-22s %d rows of %d\n", "tokens per picture", t.rows(), t.width());
}

// Tokenizer and template, and that they agree on pictures.
void CheckText(const std::string& dir, const decode::DecoderConfig& config,
               std::vector<std::string>& unsupported) {
  const auto tokenizer = text::Tokenizer::Load(dir);
  if (!tokenizer.ok()) {
    unsupported.push_back(absl::StrCat("tokenizer: ", tokenizer.status().message()));
    return;
  }
  const auto chat_template = decode::ChatTemplate::Load(dir);
  if (!chat_template.ok()) {
    unsupported.push_back(absl::StrCat("template: ", chat_template.status().message()));
    return;
  }
  decode::PromptOptions options;
  options.image_token_id = config.image_token_id;
  const auto prompts = decode::PromptBuilder::Create(**tokenizer, &*chat_template, options);
  const absl::Status status = prompts.ok() ? prompts->CheckPictures() : prompts.status();
  if (!status.ok()) unsupported.push_back(absl::StrCat("prompt: ", status.message()));
}

absl::Status InspectModel(const std::string& dir, std::ostream& out) {
  ASSIGN_OR_RETURN(const decode::ModelSummary model, decode::Inspect(dir));
  out << absl::StreamFormat("%-22s %s%s\n", "family",
                            model.family.empty() ? "(not named)" : model.family,
                            model.text_family.empty() ? "" : " / " + model.text_family);
  PrintDecoder(model, out);
  std::vector<std::string> unsupported = model.unsupported;
  PrintVision(dir, unsupported, out);
  if (model.decoder) CheckText(dir, *model.decoder, unsupported);
  out << absl::StreamFormat("%-22s %d (decoder %d, tower %d, connector %d, other %d)\n",
                            "parameters", model.parameters(), model.decoder_parameters,
                            model.vision_parameters, model.connector_parameters,
                            model.other_parameters);
  out << absl::StreamFormat("%-22s %d tensors, %s, %s\n", "weights", model.tensors,
                            absl::StrJoin(model.element_types, " "),
                            base::BytesText(static_cast<size_t>(model.weight_bytes)));
  PrintList(out, "warning", model.warnings);
  PrintList(out, "unused tensor", model.unused_tensors);
  if (unsupported.empty()) unsupported.push_back("nothing: this model can be served");
  PrintList(out, "unsupported", unsupported);
  return absl::OkStatus();
}

// The picture as the model sees it, scored; without a model, as it is.
absl::Status PrintQuality(const vision::RgbImage& image, const vision::VisionConfig& config,
                          std::ostream& out) {
  ASSIGN_OR_RETURN(const vision::Preprocessed seen, vision::Preprocess(image, config.preprocess));
  const vision::QualityScores scores =
      vision::ScoreQuality(seen.u8.data(), seen.height, seen.width, image.width, image.height);
  const vision::QualityVerdict verdict = vision::Judge(scores, {});
  out << absl::StreamFormat(
      "%-22s %s%s\n", "quality", std::string(vision::Name(verdict.verdict)),
      verdict.reasons.empty() ? "" : " (" + absl::StrJoin(verdict.reasons, ", ") + ")");
  out << absl::StreamFormat("%-22s sharpness %.1f, detail %.4f, exposure %.3f, contrast %.3f\n",
                            "scores", scores.sharpness, scores.detail, scores.exposure,
                            scores.contrast);
  return absl::OkStatus();
}

// Without a model a picture is scored at the size of the most usual tower.
absl::StatusOr<vision::VisionConfig> ConfigFor(const std::string& model) {
  if (!model.empty()) return vision::LoadVisionConfig(model);
  vision::VisionConfig config;
  config.preprocess.resize = vision::PreprocessConfig::Resize::kShortestEdge;
  config.preprocess.shortest_edge = 336;
  config.preprocess.center_crop = true;
  config.preprocess.crop_height = config.preprocess.crop_width = 336;
  config.preprocess.normalize = false;
  return config;
}

absl::Status InspectImage(const InspectOptions& options, std::ostream& out) {
  const vision::ImageLimits limits;
  ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(options.path, limits.max_bytes));
  ASSIGN_OR_RETURN(const vision::ImageHeader header, vision::ReadHeader(bytes, limits));
  ASSIGN_OR_RETURN(const vision::RgbImage image, vision::DecodeImage(bytes, limits));
  out << absl::StreamFormat("%-22s %s, %d channels of %d bits%s, %s\n", "format",
                            std::string(vision::Name(header.format)), header.channels, header.bits,
                            header.alpha ? ", alpha" : "", base::BytesText(bytes.size()));
  out << absl::StreamFormat("%-22s %d x %d\n", "size", header.width, header.height);
  out << absl::StreamFormat("%-22s %d (stored %d x %d)\n", "orientation", header.orientation,
                            header.stored_width, header.stored_height);
  ASSIGN_OR_RETURN(const vision::VisionConfig config, ConfigFor(options.model));
  RETURN_IF_ERROR(PrintQuality(image, config, out));
  if (options.model.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const vision::ImagePlan plan, vision::PlanRows(header, config));
  out << absl::StreamFormat("%-22s %d (grid %d x %d)\n", "rows", plan.rows, plan.grid_height,
                            plan.grid_width);
  return absl::OkStatus();
}

}  // namespace

absl::Status Inspect(const InspectOptions& options, std::ostream& out) {
  if (options.path.empty()) {
    return base::BadField("path", "BAD_OPTION", "a model directory or a picture is missing");
  }
  std::error_code error;
  if (!std::filesystem::exists(options.path, error)) {
    return base::Error(absl::StatusCode::kNotFound, "PATH_NOT_FOUND",
                       absl::StrCat(options.path, ": no such file or directory"));
  }
  const absl::Status status = std::filesystem::is_directory(options.path, error)
                                  ? InspectModel(options.path, out)
                                  : InspectImage(options, out);
  return base::Annotate(status, options.path);
}

}  // namespace tessera::tools
