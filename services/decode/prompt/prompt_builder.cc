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

std::string PlaceOf(size_t message, size_t part, absl::string_view kind) {
  return absl::StrCat("messages[", message, "].parts[", part, "].", kind);
}

// Of the first one. REQUIRES: there is one.
std::string PlaceOfPicture(absl::Span<const Message> messages) {
  for (size_t m = 0; m < messages.size(); ++m) {
    for (size_t p = 0; p < messages[m].parts.size(); ++p) {
      if (messages[m].parts[p].kind == Part::kImage) return PlaceOf(m, p, "image");
    }
  }
  return "messages";
}

size_t ImageParts(absl::Span<const Message> messages) {
  size_t count = 0;
  for (const Message& message : messages) {
    for (const Part& part : message.parts) count += part.kind == Part::kImage ? 1 : 0;
  }
  return count;
}

// Normal forms make at most this many bytes one: a bold mathematical letter becomes an ASCII one.
constexpr size_t kMostShrinking = 4;

// Bytes of text for which there may be one token. 0: no bound, since the tokenizer drops characters
// or makes one unknown token of many.
size_t MostBytesPerToken(const text::Tokenizer& tokenizer) {
  size_t longest = 1;  // as the file writes it, which is never shorter than the text
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max(longest, tokenizer.TokenOf(id).size());
  }
  const size_t most = longest * kMostShrinking;
  // A letter, an accent, a control character, a wide space, a private character, one beyond all.
  for (const absl::string_view character :
       {"q", "\u0301", "\x01", "\u200b", "\u3000", "\ue123", "\U000f4321"}) {
    std::string text;
    while (text.size() < 8 * most) absl::StrAppend(&text, character);
    const auto ids = tokenizer.Encode(text, {});
    if (!ids.ok() || ids->size() < text.size() / most) return 0;
  }
  return most;
}

// Templates show at least half of what users wrote, and no more than their limit.
size_t MaxTextBytes(const text::Tokenizer& tokenizer, const ChatTemplate& chat_template,
                    int64_t max_tokens) {
  const size_t most = chat_template.max_output_bytes();
  const size_t per_token = 2 * MostBytesPerToken(tokenizer);
  const size_t tokens = static_cast<size_t>(max_tokens);
  return per_token == 0 || tokens > most / per_token ? most : tokens * per_token;
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
  builder.max_text_bytes_ = MaxTextBytes(tokenizer, *chat_template, builder.options_.max_tokens);
  return builder;
}

absl::StatusOr<PromptPlan> PromptBuilder::Build(absl::Span<const Message> messages,
                                                absl::Span<const PromptImage> images) const {
  RETURN_IF_ERROR(CheckImages(messages, images));
  RETURN_IF_ERROR(CheckTexts(messages));
  ASSIGN_OR_RETURN(const Rendered rendered, template_->Render(messages, true));
  text::EncodeOptions encode;
  encode.untrusted = rendered.untrusted;
  encode.control_ids = control_ids_;
  ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer_->Encode(rendered.text, encode));
  RETURN_IF_ERROR(CheckPlaceholders(ids, images.size()));
  ids = WithBegin(std::move(ids));
  RETURN_IF_ERROR(CheckLength(ids.size(), images));
  return Plan(std::move(ids), images);
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
    const std::string place = PlaceOfPicture(messages);
    return base::BadField(place, "IMAGE_NOT_SUPPORTED",
                          absl::StrCat(place, ": this model takes no pictures"));
  }
  for (const PromptImage& image : images) {
    if (image.rows < 1) {
      return base::BadField("images", "IMAGE_COUNT",
                            absl::StrCat("a picture of ", image.rows, " rows"));
    }
  }
  return absl::OkStatus();
}

absl::Status PromptBuilder::CheckTexts(absl::Span<const Message> messages) const {
  size_t all = 0, longest = 0;
  std::string place = "messages";
  for (size_t m = 0; m < messages.size(); ++m) {
    if (messages[m].role != "user") continue;  // of the others a template may leave out more
    for (size_t p = 0; p < messages[m].parts.size(); ++p) {
      const size_t bytes = VisibleBytes(messages[m].parts[p].text);
      all += bytes;
      if (bytes <= longest) continue;
      longest = bytes;
      place = PlaceOf(m, p, "text");
    }
  }
  if (all <= max_text_bytes_) return absl::OkStatus();
  return base::BadField(place, "CONTEXT_TOO_LONG",
                        absl::StrCat(place, " has ", longest, " bytes of text (all users' texts ",
                                     all, "), which cannot fit into a context of ",
                                     options_.max_tokens, " tokens. Shorten the messages"));
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
  return base::BadField("messages", "CONTEXT_TOO_LONG",
                        absl::StrCat("the prompt has ", words, " text tokens and ", rows,
                                     " rows of pictures; the context has ", options_.max_tokens,
                                     " tokens, for prompt and answer together. Shorten the "
                                     "messages or use fewer pictures"));
}

std::vector<int32_t> PromptBuilder::WithBegin(std::vector<int32_t> ids) const {
  constexpr int32_t kOurs = -1;  // stands for the ids, to see what goes in front
  const std::vector<int32_t> frame = tokenizer_->AddSpecial({kOurs});
  const auto front = std::find(frame.begin(), frame.end(), kOurs) - frame.begin();
  const bool written = front > 0 && static_cast<size_t>(front) <= ids.size() &&
                       std::equal(frame.begin(), frame.begin() + front, ids.begin());
  return written ? ids : tokenizer_->AddSpecial(std::move(ids));
}

PromptPlan PromptBuilder::Plan(std::vector<int32_t> ids,
                               absl::Span<const PromptImage> images) const {
  PromptPlan plan;
  plan.text_tokens = static_cast<int64_t>(ids.size() - images.size());
  for (const PromptImage& image : images) plan.image_tokens += image.rows;
  if (images.empty()) {
    plan.ids = std::move(ids);
    return plan;
  }
  plan.ids.reserve(static_cast<size_t>(plan.text_tokens + plan.image_tokens));
  plan.images.reserve(images.size());
  for (const int32_t id : ids) {
    if (id != options_.image_token_id) {
      plan.ids.push_back(id);
      continue;
    }
    const int64_t rows = images[plan.images.size()].rows;
    plan.images.push_back({static_cast<int32_t>(plan.ids.size()), static_cast<int32_t>(rows)});
    plan.ids.insert(plan.ids.end(), static_cast<size_t>(rows), -1);
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
