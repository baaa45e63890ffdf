#include "tests/services/decode/model/shelf_questions.h"

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"
#include "common/base/compute_pool.h"
#include "common/base/json.h"
#include "common/text/tokenizer.h"
#include "common/weights/weights.h"
#include "kernels/create/create.h"
#include "services/decode/model/decoder_config.h"
#include "services/decode/prompt/prompt_builder.h"
#include "services/vision/encoder/row_plan.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"
#include "services/vision/tower/clip_tower.h"

namespace tessera::testing {
namespace {

constexpr char kModel[] = "models/shelf-vqa";

class Tower {
 public:
  Tower() : config_(vision::LoadVisionConfig(kModel).value()) {
    backend_ = kernels::CreateBackend("cpu", pool_).value();
    const auto weights = weights::Weights::Open(kModel).value();
    vision::TensorSource tensors(*weights);
    tower_ = vision::ClipTower::Create(config_.tower, tensors, *backend_).value();
  }

  Tensor RowsOf(const std::string& picture) {
    const std::string bytes = base::ReadFile(absl::StrCat(kModel, "/eval/", picture)).value();
    const vision::Preprocessed ready =
        vision::Preprocess(vision::DecodeImage(bytes, {}).value(), config_.preprocess).value();
    const TensorView view = {DType::kF32,
                             {3, ready.height, ready.width},
                             reinterpret_cast<const std::byte*>(ready.pixel_values.data())};
    return std::move(tower_->Encode({view}).value()[0]);
  }

 private:
  base::ComputePool pool_{2};
  vision::VisionConfig config_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<vision::ClipTower> tower_;
};

class Prompts {
 public:
  Prompts()
      : config_(decode::DecoderConfig::Load(kModel).value()),
        tokenizer_(text::Tokenizer::Load(kModel).value()),
        template_(decode::ChatTemplate::Load(kModel).value()),
        builder_(decode::PromptBuilder::Create(*tokenizer_, &template_, Options()).value()) {}

  Script ScriptOf(const std::string& question, const std::string& answer, int64_t rows) const {
    decode::Message message;
    message.role = "user";
    message.parts.push_back({decode::Part::kImage, ""});
    message.parts.push_back({decode::Part::kText, question});
    const decode::PromptPlan plan = builder_.Build({message}, {{rows}}).value();
    Script script;
    script.Append(plan.ids);
    script.prompt = script.size();
    // The template puts a space before an answer; `reference` is without.
    script.Append(tokenizer_->Encode(absl::StrCat(" ", answer), {}).value());
    script.Append({config_.eos_ids[0]});
    return script;
  }

 private:
  decode::PromptOptions Options() const {
    decode::PromptOptions options;
    options.image_token_id = config_.image_token_id;
    return options;
  }

  const decode::DecoderConfig config_;
  const std::unique_ptr<text::Tokenizer> tokenizer_;
  const decode::ChatTemplate template_;
  const decode::PromptBuilder builder_;
};

}  // namespace

std::vector<ShelfQuestion> ShelfQuestions(size_t count) {
  const std::string lines = base::ReadFile(absl::StrCat(kModel, "/eval/eval.jsonl")).value();
  std::map<std::string, std::vector<base::Json>> by_picture;
  for (const auto line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    base::Json json = base::Json::parse(line);
    by_picture[json["image"].get<std::string>()].push_back(std::move(json));
  }
  const std::vector<std::pair<std::string, std::vector<base::Json>>> pictures(by_picture.begin(),
                                                                              by_picture.end());
  Tower tower;
  const Prompts prompts;
  std::vector<Tensor> rows;
  std::vector<ShelfQuestion> questions;
  for (size_t k = 0; k < count; ++k) {
    const auto& [picture, asked] = pictures[k % pictures.size()];
    if (k < pictures.size()) rows.push_back(tower.RowsOf(picture));
    const base::Json& json = asked[(k + k / pictures.size()) % asked.size()];
    ShelfQuestion& question = questions.emplace_back();
    question.picture = picture;
    question.question = json["question"].get<std::string>();
    question.reference = json["reference"].get<std::string>();
    const Tensor& own = rows[k % pictures.size()];
    question.script = prompts.ScriptOf(question.question, question.reference, own.shape()[0]);
    question.script.rows = own;
  }
  return questions;
}

}  // namespace tessera::testing
