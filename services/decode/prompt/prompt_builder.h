#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/text/tokenizer.h"
#include "services/decode/prompt/prompt_plan.h"
#include "services/decode/template/chat_template.h"

namespace tessera::decode {

struct PromptOptions {
  // The placeholder that the template writes for a picture; none: a model without pictures.
  std::optional<int32_t> image_token_id;
  // Further ids that the configs name: bos, eos, pad, video, vision start and end.
  std::vector<int32_t> control_ids;
  int64_t max_tokens = int64_t{1} << 20;  // the model's context: of a whole prompt, rows included
};

// From messages to token ids and rows. Pure; any thread. Borrows tokenizer and template.
//
// What users wrote never becomes a control token: a special token, an id that the configs name, or
// an added token that the template itself writes. So the k-th image token is the template's, and
// stands for the k-th picture in message order.
class PromptBuilder {
 public:
  // NOT_FOUND (NO_CHAT_TEMPLATE) when `chat_template` is null; INVALID_ARGUMENT (BAD_TOKEN_ID) for
  // an id that the tokenizer does not have. REQUIRES: both outlive this.
  static absl::StatusOr<PromptBuilder> Create(const text::Tokenizer& tokenizer,
                                              const ChatTemplate* chat_template,
                                              PromptOptions options);

  // `images`: one per image part, in message order. The prompt ends with what asks for an answer.
  // INVALID_ARGUMENT: as ChatTemplate::Render; IMAGE_COUNT when the counts of pictures, image parts
  // and the template's image tokens differ (it dropped or doubled one); CONTEXT_TOO_LONG with the
  // numbers. A text that cannot fit whatever its tokens is refused before anything is made of it.
  absl::StatusOr<PromptPlan> Build(absl::Span<const Message> messages,
                                   absl::Span<const PromptImage> images) const;

  // Whether a user's picture becomes exactly one placeholder: to be asked once, at load.
  // INVALID_ARGUMENT (TEMPLATE_LOSES_IMAGES) says what template, tokenizer and config make of it.
  absl::Status CheckPictures() const;

  absl::Span<const int32_t> control_ids() const { return control_ids_; }  // sorted

 private:
  PromptBuilder(const text::Tokenizer& tokenizer, const ChatTemplate& chat_template,
                PromptOptions options)
      : tokenizer_(&tokenizer), template_(&chat_template), options_(std::move(options)) {}

  absl::Status CheckImages(absl::Span<const Message> messages,
                           absl::Span<const PromptImage> images) const;
  absl::Status CheckTexts(absl::Span<const Message> messages) const;
  absl::Status CheckPlaceholders(absl::Span<const int32_t> ids, size_t images) const;
  absl::Status CheckLength(size_t tokens, absl::Span<const PromptImage> images) const;
  // The post-processor's begin token, unless the template wrote it.
  std::vector<int32_t> WithBegin(std::vector<int32_t> ids) const;
  PromptPlan Plan(std::vector<int32_t> ids, absl::Span<const PromptImage> images) const;

  const text::Tokenizer* tokenizer_;
  const ChatTemplate* template_;
  PromptOptions options_;
  std::vector<int32_t> control_ids_;
  size_t max_text_bytes_ = 0;  // visible ones of all that users wrote; more never fits
};

}  // namespace tessera::decode
