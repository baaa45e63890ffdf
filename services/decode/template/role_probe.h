#pragma once

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/decode/template/message_value.h"
#include "services/decode/template/text.h"

namespace tessera::decode {

// Renders messages, with or without a generation prompt behind.
using RenderMessages =
    absl::FunctionRef<absl::StatusOr<jinja::Text>(jinja::Items messages, bool prompt)>;

struct RoleProbes {
  std::vector<RoleForm> roles;  // user, system, assistant
  std::string own_text;         // what the template wrote around the probes
};

// Tries each role with a probe text, alone for a user, before one for the system, between two for
// the assistant; and, but for a user, with a picture, which is shown where it changes the prompt.
// INVALID_ARGUMENT when a user's probe is not shown in either form: the template's failure,
// TEMPLATE_RAISED, or TEMPLATE_HIDES_TEXT.
absl::StatusOr<RoleProbes> ProbeRoles(RenderMessages render);

}  // namespace tessera::decode
