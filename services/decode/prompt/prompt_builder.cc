#include "services/decode/prompt/prompt_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

std::vector<int32_t> ControlIds(const text::Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                const PromptOptions& options) {
  std::vector<int32_t> ids = tokenizer.special_ids();
  ids.insert(ids.end(), options.control_ids.begin(), options.control_ids.end());
  if (options.image_token_id) ids.push_back(*options.image_token_id);
  for (const text::AddedToken& token : tokenizer.added_tokens()) {
    if (absl::StrContains(chat_template.own_text(), token.content)) ids.push_back(token.id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

size_t ImageParts(absl::Span<const Message> messages) {
  size_t count = 0;
  for (const Message& message : messages) {
    for (const Part& part : message.parts) count += part.kind == Part::kImage ? 1 : 0;
  }
  return count;
}

}  // namespace

absl::StatusOr<PromptBuilder> PromptBuilder::Create(const text::Tokenizer& tokenizer,
                                                    const ChatTemplate* chat_template,
                                                    PromptOptions options) {
  if (chat_template == nullptr) {
    return base::Error(absl::StatusCode::kNotFound, "NO_CHAT_TEMPLATE",
                       "this model has no chat template");
  }
  std::vector<int32_t> named = options.control_ids;
  if (options.image_token_id) named.push_back(*options.image_token_id);
  for (const int32_t id : named) {
    if (id < 0) {
      return base::Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                         absl::StrCat("the configs name token ", id, ", which cannot be"));
    }
  }
  if (options.image_token_id && tokenizer.TokenOf(*options.image_token_id).empty()) {
    return base::Error(absl::StatusCode::kInvalidArgument, "BAD_TOKEN_ID",
                       absl::StrCat("the tokenizer has no image token ", *options.image_token_id));
  }
  PromptBuilder builder(tokenizer, *chat_template, std::move(options));
  builder.control_ids_ = ControlIds(tokenizer, *chat_template, builder.options_);
  return builder;
}

absl::StatusOr<PromptPlan> PromptBuilder::Build(absl::Span<const Message> messages,
                                                absl::Span<const PromptImage> images) const {
  RETURN_IF_ERROR(CheckImages(messages, images));
  ASSIGN_OR_RETURN(const Rendered rendered, template_->Render(messages, true));
  text::EncodeOptions encode;
  encode.untrusted = rendered.untrusted;
  encode.control_ids = control_ids_;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->Encode(rendered.text, encode));
  RETURN_IF_ERROR(CheckPlaceholders(ids, images.size()));
  ids = WithBegin(std::move(ids));
  RETURN_IF_ERROR(CheckLength(ids.size(), images));
  return Plan(ids, images);
}

absl::Status PromptBuilder::CheckImages(absl::Span<const Message> messages,
                                        absl::Span<const PromptImage> images) const {
  const size_t parts = ImageParts(messages);
  if (parts != images.size()) {
    return base::BadField("messages", "IMAGE_COUNT",
                          absl::StrCat("the messages have ", parts, " image parts, but there are ",
                                       images.size(), " pictures"));
  }
  if (parts > 0 && !options_.image_token_id) {
    return base::BadField("messages", "IMAGE_NOT_SUPPORTED", "this model takes no pictures");
  }
  for (const PromptImage& image : images) {
    if (image.rows < 1) {
      return base::BadField("images", "IMAGE_COUNT",
                            absl::StrCat("a picture of ", image.rows, " rows"));
    }
  }
  return absl::OkStatus();
}

absl::Status PromptBuilder::CheckPlaceholders(absl::Span<const int32_t> ids, size_t images) const {
  if (!options_.image_token_id) return absl::OkStatus();
  const auto placeholders = std::count(ids.begin(), ids.end(), *options_.image_token_id);
  if (static_cast<size_t>(placeholders) == images) return absl::OkStatus();
  return base::BadField(
      "messages", "IMAGE_COUNT",
      absl::StrCat("the model's chat template writes ", placeholders, " image tokens for ", images,
                   " pictures: put them where it shows them, as a rule in user messages"));
}

absl::Status PromptBuilder::CheckLength(size_t tokens, absl::Span<const PromptImage> images) const {
  int64_t rows = 0;
  bool over = false;
  for (const PromptImage& image : images) over |= __builtin_add_overflow(rows, image.rows, &rows);
  const int64_t words = static_cast<int64_t>(tokens - images.size());
  if (!over && rows <= options_.max_tokens && words <= options_.max_tokens - rows) {
    return absl::OkStatus();
  }
  return base::BadField("messages", "PROMPT_TOO_LONG",
                        absl::StrCat("the prompt has ", words, " text tokens and ", rows,
                                     " image tokens, the limit is ", options_.max_tokens));
}

std::vector<int32_t> PromptBuilder::WithBegin(std::vector<int32_t> ids) const {
  constexpr int32_t kOurs = -1;  // stands for the ids, to see what goes in front
  const std::vector<int32_t> frame = tokenizer_->AddSpecial({kOurs});
  const auto front = std::find(frame.begin(), frame.end(), kOurs) - frame.begin();
  const bool written = front > 0 && static_cast<size_t>(front) <= ids.size() &&
                       std::equal(frame.begin(), frame.begin() + front, ids.begin());
  return written ? ids : tokenizer_->AddSpecial(std::move(ids));
}

PromptPlan PromptBuilder::Plan(absl::Span<const int32_t> ids,
                               absl::Span<const PromptImage> images) const {
  PromptPlan plan;
  int next = 0;
  for (const int32_t id : ids) {
    if (options_.image_token_id && id == *options_.image_token_id) {
      const int64_t rows = images[static_cast<size_t>(next)].rows;
      plan.segments.push_back({true, next++, {}, rows});
      plan.ids.insert(plan.ids.end(), static_cast<size_t>(rows), id);
      plan.image_tokens += rows;
      continue;
    }
    if (plan.segments.empty() || plan.segments.back().is_image) plan.segments.emplace_back();
    plan.segments.back().ids.push_back(id);
    plan.ids.push_back(id);
    ++plan.text_tokens;
  }
  return plan;
}

absl::Status PromptBuilder::CheckPictures() const {
  if (!options_.image_token_id.has_value()) return absl::OkStatus();
  const std::vector<Message> messages = {
      {"user", {{Part::kImage, ""}, {Part::kText, "What is this?"}}}};
  const absl::Status status = Build(messages, {PromptImage{1}}).status();
  if (status.ok()) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kInvalidArgument, "TEMPLATE_LOSES_IMAGES",
      absl::StrCat("chat template, tokenizer and image_token_index (", *options_.image_token_id,
                   ") do not make one placeholder of one picture: ", status.message()));
}

}  // namespace tessera::decode
