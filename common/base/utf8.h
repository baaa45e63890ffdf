#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace tessera::base {

inline constexpr absl::string_view kReplacementCharacter = "\xef\xbf\xbd";  // U+FFFD

// Bytes of the well-formed UTF-8 character that `text` begins with (Unicode 15, table 3-7); 0 where
// there is none. REQUIRES: `text` is not empty.
size_t CharacterBytes(absl::string_view text);

// `text` with every byte that is part of no character replaced by U+FFFD: for what is told of bytes
// that others sent, cut anywhere.
std::string ToUtf8(absl::string_view text);

}  // namespace tessera::base
