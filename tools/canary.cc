#include "tools/canary.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/bytes.h"
#include "common/base/compute_pool.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/tokenizer.h"
#include "common/weights/canary_file.h"
#include "common/weights/safetensors_writer.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/decode/model/canary.h"
#include "services/decode/model/llama_model.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/decode/template/chat_template.h"
#include "services/vision/encoder/canary.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/tower/clip_tower.h"

namespace tessera::tools {
namespace {

using weights::Canary;

constexpr int kSteps = 8;  // tokens of an answer
// Of different kinds: a model may have learnt one only.
constexpr const char* kQuestions[] = {"What is in the picture?",     "Describe the picture.",
                                      "What colors are there?",      "What is in row 1?",
                                      "What is in row 1, column 1?", "How many items are in row 1?",
                                      "How many things do you see?", "What is the price on row 1?"};

// Picture, rows and preprocessing.
absl::Status AddPicture(const CanaryOptions& options, const weights::Weights& weights,
                        kernels::Backend& backend, Canary& canary) {
  ASSIGN_OR_RETURN(const vision::VisionConfig config, vision::LoadVisionConfig(options.model_dir));
  vision::TensorSource tensors(weights);
  ASSIGN_OR_RETURN(const auto tower, vision::ClipTower::Create(config.tower, tensors, backend));
  ASSIGN_OR_RETURN(vision::CanaryRows rows, vision::DrawCanary(config, *tower));
  canary.preprocessing = config.preprocess.Canonical();
  canary.picture = std::move(rows.picture);
  canary.rows = std::move(rows.rows);
  canary.grey_rows = std::move(rows.grey_rows);
  return absl::OkStatus();
}

// What turns a question about one picture into ids.
class Prompts {
 public:
  static absl::StatusOr<std::unique_ptr<Prompts>> Load(const std::string& model_dir,
                                                       const decode::DecoderConfig& config) {
    auto prompts = std::unique_ptr<Prompts>(new Prompts());
    ASSIGN_OR_RETURN(prompts->tokenizer_, text::Tokenizer::Load(model_dir));
    ASSIGN_OR_RETURN(prompts->template_, decode::ChatTemplate::Load(model_dir));
    decode::PromptOptions options;
    options.image_token_id = config.image_token_id;
    options.max_tokens = config.max_position_embeddings;
    ASSIGN_OR_RETURN(prompts->builder_,
                     decode::PromptBuilder::Create(*prompts->tokenizer_, &*prompts->template_,
                                                   std::move(options)));
    return prompts;
  }

  // -1 where a row stands.
  absl::StatusOr<std::vector<int32_t>> Ids(const char* question, int64_t rows) const {
    const decode::Message message = {"user",
                                     {{decode::Part::kImage, ""}, {decode::Part::kText, question}}};
    ASSIGN_OR_RETURN(decode::PromptPlan plan, builder_->Build({message}, {{rows}}));
    return std::move(plan.ids);
  }

  std::string Text(const std::vector<int32_t>& ids) const {
    return tokenizer_->Decode(ids, /*skip_special=*/false);
  }

 private:
  Prompts() = default;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<decode::ChatTemplate> template_;
  std::optional<decode::PromptBuilder> builder_;
};

// Prompt and answers: of the first question that tells the picture from grey.
absl::Status AddAnswers(const CanaryOptions& options, const weights::Weights& weights,
                        kernels::Backend& backend, Canary& canary, std::ostream& out) {
  ASSIGN_OR_RETURN(const auto config, decode::DecoderConfig::Load(options.model_dir));
  ASSIGN_OR_RETURN(const auto prompts, Prompts::Load(options.model_dir, config));
  ASSIGN_OR_RETURN(const auto model, decode::LlamaModel::Create(weights, config, backend));
  const decode::CanaryDevice device = {config, *model, backend,
                                       decode::SpecFor(config, 1, DType::kF32)};
  for (const char* question : kQuestions) {
    ASSIGN_OR_RETURN(canary.prompt_ids, prompts->Ids(question, canary.rows.shape()[0]));
    ASSIGN_OR_RETURN(canary.answer,
                     decode::AnswerCanary(device, canary.prompt_ids, canary.rows, kSteps));
    ASSIGN_OR_RETURN(canary.grey,
                     decode::AnswerCanary(device, canary.prompt_ids, canary.grey_rows, kSteps));
    const bool told = decode::TellsSightFromGrey(canary.answer, canary.grey);
    out << "  " << question << "\n    picture: " << prompts->Text(canary.answer.ids)
        << "\n    grey:    " << prompts->Text(canary.grey.ids)
        << (told ? "\n" : "\n    too much alike\n");
    if (told) return absl::OkStatus();
  }
  return base::Error(absl::StatusCode::kFailedPrecondition, "CANARY_BLIND",
                     absl::StrCat(options.model_dir,
                                  ": no question is answered differently enough for a picture and "
                                  "for plain grey, so a canary would prove nothing: the model "
                                  "seems to be blind"));
}

}  // namespace

absl::Status WriteCanary(const CanaryOptions& options, std::ostream& out) {
  base::ComputePool pool(base::ComputePool::AvailableCpus());
  ASSIGN_OR_RETURN(const auto backend, kernels::CreateBackend(options.device, pool));
  Canary canary;
  ASSIGN_OR_RETURN(canary.model_digest, weights::ModelDigest(options.model_dir));
  ASSIGN_OR_RETURN(const auto weights, weights::Weights::Open(options.model_dir));
  out << "tessera canary\n";
  RETURN_IF_ERROR(AddPicture(options, *weights, *backend, canary));
  RETURN_IF_ERROR(AddAnswers(options, *weights, *backend, canary, out));
  RETURN_IF_ERROR(weights->CheckUnchanged());
  const std::string path =
      options.out.empty()
          ? (std::filesystem::path(options.model_dir) / weights::kCanaryFileName).string()
          : options.out;
  const std::string bytes = weights::CanaryBytes(canary);
  RETURN_IF_ERROR(weights::ReplaceFile(path, bytes));
  out << "  rows    " << ShapeText(canary.rows.shape()) << "\n  written " << path << " ("
      << base::BytesText(bytes.size()) << ")\n";
  return absl::OkStatus();
}

}  // namespace tessera::tools
