#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/text/tokenizer.h"
#include "services/decode/stream/stop_matcher.h"

namespace tessera::decode {

// An answer's tokens to the text that may be sent: whole characters, special tokens skipped, cut
// before the first stop. One answer, one thread.
class TextStream {
 public:
  // Borrows the tokenizer. REQUIRES: ValidateStops(stops) is OK.
  TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops);

  // Appends to `out` what is safe after these tokens. True once the text has ended at a stop.
  bool Push(absl::Span<const int32_t> ids, std::string& out);
  // No more tokens: appends what was held back. True when the text ended at a stop.
  bool Finish(std::string& out);

  // The stop that ended the text; empty when none did.
  absl::string_view stop() const { return matcher_.stop(); }

 private:
  text::StreamDecoder decoder_;
  StopMatcher matcher_;
};

}  // namespace tessera::decode
