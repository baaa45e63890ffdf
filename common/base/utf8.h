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

// What is shown of `text`, which others sent: as ToUtf8, in at most `most` bytes; what does not fit
// is cut between two characters and has "..." for its rest. REQUIRES: `most` is at least 3.
std::string Excerpt(absl::string_view text, size_t most = 200);

}  // namespace tessera::base
