#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "common/text/marked_text.h"

// The byte alphabet of GPT-2's encoder: each byte is written as one printable character.
namespace tessera::text {

MarkedText ToByteChars(const MarkedView& text);

// Appends the bytes that a token stands for; a token with any character outside the alphabet stands
// for itself (added tokens).
void AppendTokenBytes(absl::string_view token, std::string* out);

}  // namespace tessera::text
