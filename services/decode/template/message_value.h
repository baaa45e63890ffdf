#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "services/decode/template/message.h"
#include "services/decode/template/value.h"

namespace tessera::decode {

// How a role's messages are given to a template.
struct RoleForm {
  std::string role;
  bool as_string = false;   // a string shows the text
  bool as_list = false;     // a list of parts shows it
  bool many_texts = false;  // a list shows each of several texts
  bool pictures = false;    // a list shows a picture
  std::string words;        // why neither form shows the text
  bool supported() const { return as_string || as_list; }
};

// A message as the template sees it. The role is one of our own three words, so it is the
// template's text as well (some write '<|' ~ role ~ '|>'); content is the user's.
// `place` names the message in errors. INVALID_ARGUMENT: BAD_MESSAGES, INVALID_UTF8.
// REQUIRES: no picture unless form.pictures.
absl::StatusOr<jinja::Value> MessageValue(const Message& message, const RoleForm& form,
                                          absl::string_view place);

// The two forms of content.
jinja::Value StringContent(absl::Span<const Part> parts);
jinja::Value ListContent(absl::Span<const Part> parts);

// {'role': role, 'content': content}
jinja::Value RoleAndContent(absl::string_view role, jinja::Value content);

}  // namespace tessera::decode
