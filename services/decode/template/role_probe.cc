#include "services/decode/template/role_probe.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

using jinja::Value;

// Digits: no filter for upper or lower case changes them. The second one shows whether a list may
// hold several texts.
constexpr absl::string_view kProbe = "90417263558146370928";
constexpr absl::string_view kSecond = "31882950746615702843";
constexpr absl::string_view kFiller = "55";

const Part kPicture = {Part::kImage, ""};

std::vector<Part> Texts(std::initializer_list<absl::string_view> texts) {
  std::vector<Part> parts;
  for (const absl::string_view text : texts) parts.push_back({Part::kText, std::string(text)});
  return parts;
}

size_t CountOf(absl::string_view text, absl::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != absl::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++count;
  }
  return count;
}

// The probe stands there once, and not inside a printed list of parts.
bool Shows(const jinja::Text& text, absl::string_view probe) {
  if (CountOf(text.view(), probe) != 1) return false;
  const absl::string_view before = text.view().substr(0, text.view().find(probe));
  return !absl::EndsWith(before, "'text': '") && !absl::EndsWith(before, "\"text\": \"");
}

std::string TrustedPart(const jinja::Text& text) {
  std::string own;
  size_t at = 0;
  for (const auto& range : text.untrusted()) {
    absl::StrAppend(&own, text.view().substr(at, range.begin - at), "\n");
    at = range.end;
  }
  absl::StrAppend(&own, text.view().substr(at), "\n");
  return own;
}

class Prober {
 public:
  explicit Prober(RenderMessages render) : render_(render) {}

  absl::StatusOr<RoleProbes> Run() {
    const RoleForm user = Probe("user");
    if (!user.supported()) return Refusal();
    user_as_string_ = user.as_string;
    result_.roles.push_back(user);
    result_.roles.push_back(Probe("system"));
    result_.roles.push_back(Probe("assistant"));
    return std::move(result_);
  }

 private:
  // Every place of a conversation where the role may stand, the usual one first.
  std::vector<jinja::Items> Conversations(absl::string_view role, const Value& content) const {
    const Value message = RoleAndContent(role, content);
    if (role == "user") return {{message}};
    const std::vector<Part> parts = Texts({kFiller});
    const Value filler =
        RoleAndContent("user", user_as_string_ ? StringContent(parts) : ListContent(parts));
    if (role == "system") return {{message, filler}};
    return {{filler, message, filler}, {filler, message}};
  }

  bool Shown(absl::string_view role, const Value& content,
             std::initializer_list<absl::string_view> probes) {
    for (jinja::Items& messages : Conversations(role, content)) {
      const absl::StatusOr<jinja::Text> text = Render(std::move(messages), role);
      if (!text.ok()) {
        Note(text.status());
        continue;
      }
      bool all = true;
      for (const absl::string_view probe : probes) all &= Shows(*text, probe);
      if (!all) continue;
      absl::StrAppend(&result_.own_text, TrustedPart(*text));
      return true;
    }
    return false;
  }

  absl::StatusOr<jinja::Text> Render(jinja::Items messages, absl::string_view role) {
    const bool prompt = messages.size() != 2 || role == "system";
    return render_(std::move(messages), prompt);
  }

  // A picture beside the text changes what is rendered.
  bool ShowsPicture(absl::string_view role) {
    const Part probe = {Part::kText, std::string(kProbe)};
    const auto plain = Conversations(role, ListContent({probe}));
    for (const std::vector<Part>& parts : {std::vector{kPicture, probe}, {probe, kPicture}}) {
      auto pictured = Conversations(role, ListContent(parts));
      for (size_t i = 0; i < pictured.size(); ++i) {
        const absl::StatusOr<jinja::Text> with = Render(pictured[i], role);
        const absl::StatusOr<jinja::Text> without = Render(plain[i], role);
        if (with.ok() && without.ok() && Shows(*with, kProbe) && with->view() != without->view()) {
          return true;
        }
      }
    }
    return false;
  }

  RoleForm Probe(absl::string_view role) {
    RoleForm form;
    form.role = std::string(role);
    problem_ = absl::OkStatus();
    form.as_string = Shown(role, StringContent(Texts({kProbe})), {kProbe});
    form.as_list = Shown(role, ListContent(Texts({kProbe})), {kProbe});
    form.many_texts =
        form.as_list && Shown(role, ListContent(Texts({kProbe, kSecond})), {kProbe, kSecond});
    // Whether a user's picture is shown is asked by who knows its placeholder.
    form.pictures = form.as_list && (role == "user" || ShowsPicture(role));
    if (!form.supported()) {
      form.words =
          problem_.ok() ? "it does not show such messages" : std::string(problem_.message());
    }
    return form;
  }

  // Keeps why a rendering failed; what the template itself says tells most.
  void Note(const absl::Status& status) {
    if (problem_.ok() || base::ReasonOf(status) == "TEMPLATE_RAISED") problem_ = status;
  }

  absl::Status Refusal() const {
    if (!problem_.ok()) return base::Annotate(problem_, "a user's message");
    return base::Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_HIDES_TEXT",
                       "a user's text is not shown, neither as a string nor as a list of parts: "
                       "this template does not suit the model");
  }

  RenderMessages render_;
  RoleProbes result_;
  bool user_as_string_ = true;
  absl::Status problem_;
};

}  // namespace

absl::StatusOr<RoleProbes> ProbeRoles(RenderMessages render) { return Prober(render).Run(); }

}  // namespace tessera::decode
