#include "services/decode/template/chat_template.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/text/utf8.h"
#include "services/decode/template/interpreter.h"
#include "services/decode/template/message_value.h"
#include "services/decode/template/parser.h"
#include "services/decode/template/role_probe.h"

namespace tessera::decode {
namespace {

using jinja::Value;

std::string PlaceOf(size_t message) { return absl::StrCat("messages[", message, "]"); }

}  // namespace

size_t VisibleBytes(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !absl::ascii_isspace(c); }));
}

struct ChatTemplate::State {
  Options options;
  jinja::Block block;
  std::vector<RoleForm> roles;
  std::string own_text;

  absl::StatusOr<jinja::Text> RenderValues(jinja::Items messages, bool prompt) const {
    jinja::Globals globals = {{"messages", Value::List(std::move(messages))},
                              {"add_generation_prompt", Value::Bool(prompt)}};
    for (const auto& [name, text] : options.tokens) globals.emplace_back(name, Value::String(text));
    return jinja::Interpreter(options.limits).Render(block, globals);
  }

  absl::StatusOr<const RoleForm*> FormOf(absl::string_view role) const {
    std::string known;
    for (const RoleForm& form : roles) {
      if (form.role == role && form.supported()) return &form;
      if (form.role == role) {
        return base::Error(absl::StatusCode::kInvalidArgument, "UNSUPPORTED_ROLE",
                           absl::StrCat("the model's chat template does not take messages of "
                                        "role '",
                                        role, "': ", form.words));
      }
      if (form.supported()) absl::StrAppend(&known, known.empty() ? "" : ", ", form.role);
    }
    return base::Error(absl::StatusCode::kInvalidArgument, "UNSUPPORTED_ROLE",
                       absl::StrCat("unknown role '", role.substr(0, 64), "', known: ", known));
  }

  absl::Status CheckPictures(const Message& message, const RoleForm& form,
                             absl::string_view place) const {
    const auto picture = std::find_if(message.parts.begin(), message.parts.end(),
                                      [](const Part& part) { return part.kind == Part::kImage; });
    if (form.pictures || picture == message.parts.end()) return absl::OkStatus();
    std::string takers;
    for (const RoleForm& other : roles) {
      if (other.pictures) absl::StrAppend(&takers, takers.empty() ? "" : ", ", other.role);
    }
    const std::string field =
        absl::StrCat(place, ".parts[", picture - message.parts.begin(), "].image");
    return base::BadField(
        field, "IMAGE_NOT_SUPPORTED",
        absl::StrCat(field, ": a message of role '", form.role,
                     "' cannot show a picture: the model's chat template takes pictures ",
                     takers.empty() ? "in no message" : "only in messages of role ", takers));
  }

  absl::StatusOr<Value> ValueOf(const Message& message, absl::string_view place) const {
    const absl::StatusOr<const RoleForm*> form = FormOf(message.role);
    if (!form.ok()) {
      const std::string field = absl::StrCat(place, ".role");
      return base::WithField(base::Annotate(form.status(), field), field);
    }
    RETURN_IF_ERROR(CheckPictures(message, **form, place));
    return MessageValue(message, **form, place);
  }

  // Which message the template raised its error at: the last of the shortest beginning of the
  // conversation that it refuses. REQUIRES: it refuses the whole.
  std::string PlaceOfRaise(const jinja::Items& messages) const {
    size_t good = 0, bad = messages.size();  // lengths
    while (bad - good > 1) {
      const size_t length = good + (bad - good) / 2;
      const absl::Status status =
          RenderValues({messages.begin(), messages.begin() + length}, true).status();
      (base::ReasonOf(status) == "TEMPLATE_RAISED" ? bad : good) = length;
    }
    return PlaceOf(bad - 1);
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Create(Options options) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  const std::string& origin = state->options.origin;
  if (absl::Status status = text::ValidateUtf8(state->options.source); !status.ok()) {
    return base::Annotate(status, origin);
  }
  absl::StatusOr<jinja::Block> block = jinja::Parse(state->options.source, state->options.limits);
  if (!block.ok()) return base::Annotate(block.status(), origin);
  state->block = *std::move(block);
  absl::StatusOr<RoleProbes> probes = ProbeRoles([&state](jinja::Items messages, bool prompt) {
    return state->RenderValues(std::move(messages), prompt);
  });
  if (!probes.ok()) return base::Annotate(probes.status(), origin);
  state->roles = std::move(probes->roles);
  state->own_text = absl::StrCat(state->options.source, "\n", probes->own_text);
  return ChatTemplate(std::move(state));
}

absl::StatusOr<Rendered> ChatTemplate::Render(absl::Span<const Message> messages,
                                              bool add_generation_prompt) const {
  if (messages.empty()) return base::BadField("messages", "BAD_MESSAGES", "there is no message");
  jinja::Items values;
  size_t asked = 0;  // what users wrote
  for (const Message& message : messages) {
    ASSIGN_OR_RETURN(Value value, state_->ValueOf(message, PlaceOf(values.size())));
    values.push_back(std::move(value));
    if (message.role != "user") continue;
    for (const Part& part : message.parts) asked += VisibleBytes(part.text);
  }
  const absl::StatusOr<jinja::Text> text = state_->RenderValues(values, add_generation_prompt);
  if (!text.ok()) {
    const bool raised = base::ReasonOf(text.status()) == "TEMPLATE_RAISED";
    return base::WithField(text.status(), raised ? state_->PlaceOfRaise(values) : "messages");
  }
  Rendered rendered;
  rendered.text = text->bytes();
  rendered.untrusted = text->untrusted();
  size_t shown = 0;
  for (const text::ByteRange& range : rendered.untrusted) {
    shown += VisibleBytes(text->view().substr(range.begin, range.end - range.begin));
  }
  // A template may trim or strip markers; it may not leave out what was asked.
  if (shown < (asked + 1) / 2) {
    return base::BadField("messages", "TEMPLATE_HIDES_TEXT",
                          "the model's chat template leaves out most of what the user wrote");
  }
  return rendered;
}

size_t ChatTemplate::max_output_bytes() const { return state_->options.limits.max_output_bytes; }
const std::string& ChatTemplate::source() const { return state_->options.source; }
const std::string& ChatTemplate::own_text() const { return state_->own_text; }

}  // namespace tessera::decode
