#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/marked_text.h"
#include "services/decode/template/limits.h"
#include "services/decode/template/message.h"

namespace tessera::decode {

// A prompt and the bytes of it that users wrote: sorted, apart, not empty. All others are the
// template's; only those may become control or image tokens.
struct Rendered {
  std::string text;
  std::vector<text::ByteRange> untrusted;
};

// Bytes that are no ASCII white space, which templates and tokenizers may drop.
size_t VisibleBytes(absl::string_view text);

// The chat template of a model: its own Jinja. Immutable after loading, any thread; a rendering
// takes the caller's thread and is bounded by the limits.
//
// When loaded, each role is rendered with a probe, as a string and as a list of parts. The form
// that shows the probe once, and not as a printed list, is used for the role; a string if both do;
// a message with a picture needs the list. Where only the string works, several texts of a message
// are put together without anything between; so they are where a list shows only its first text.
class ChatTemplate {
 public:
  struct Options {
    std::string source;
    std::string origin = "chat template";  // named in errors
    // Variables such as bos_token, eos_token: text that the model wrote.
    std::vector<std::pair<std::string, std::string>> tokens;
    jinja::Limits limits;
  };

  // Reads chat_template.jinja, else chat_template.json, else chat_template of
  // tokenizer_config.json (where it is a list: the one named "default"), and every `*_token` of
  // tokenizer_config.json and special_tokens_map.json. NOT_FOUND (NO_CHAT_TEMPLATE) without a
  // template; INVALID_ARGUMENT (BAD_CHAT_TEMPLATE) for malformed files; then as Create.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model_dir);

  // INVALID_ARGUMENT: TEMPLATE_FAILED with the line (syntax, an unknown tag, filter or test,
  // nesting), TEMPLATE_HIDES_TEXT when a user's words are shown in neither form, TEMPLATE_RAISED
  // when the template refuses a user's message, or INVALID_UTF8.
  static absl::StatusOr<ChatTemplate> Create(Options options);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // All INVALID_ARGUMENT, by reason: UNSUPPORTED_ROLE with the role and the template's words,
  // TEMPLATE_RAISED (the template refuses these messages; its own words), TEMPLATE_FAILED (it
  // cannot be rendered), TEMPLATE_HIDES_TEXT (less than half of what users wrote is shown),
  // IMAGE_NOT_SUPPORTED (in a message of this role), INVALID_UTF8, BAD_MESSAGES. The field is the
  // place: "messages[0].role", "messages[1].parts[0].image", "messages[2]".
  absl::StatusOr<Rendered> Render(absl::Span<const Message> messages,
                                  bool add_generation_prompt) const;

  // Of a rendering.
  size_t max_output_bytes() const;

  // Where added tokens that the template itself uses are looked for: its source and what it put
  // around the probes.
  const std::string& source() const;
  const std::string& own_text() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace tessera::decode
