#include <utility>

#include "absl/strings/match.h"
#include "common/text/tokenizer.h"

namespace tessera::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, absl::Span<const int32_t> context)
    : tokenizer_(tokenizer), strip_left_(tokenizer.decoder().strip_count()) {
  for (const int32_t id : context) Add(id);
}

std::string StreamDecoder::Add(int32_t id) {
  const absl::string_view token = tokenizer_.TokenView(id);
  if (token.empty() || tokenizer_.IsSpecial(id)) return "";
  const TokenBytes piece = tokenizer_.decoder().BytesOf(token, first_);
  first_ = false;
  return Strip(repair_.Add(piece.bytes));
}

std::string StreamDecoder::Flush() { return Strip(repair_.Flush()); }

std::string StreamDecoder::Strip(std::string text) {
  const std::string& what = tokenizer_.decoder().strip_char();
  size_t dropped = 0;
  while (strip_left_ > 0 && dropped < text.size()) {
    if (!absl::StartsWith(absl::string_view(text).substr(dropped), what)) {
      strip_left_ = 0;  // the text has begun
      break;
    }
    dropped += what.size();
    --strip_left_;
  }
  return dropped == 0 ? std::move(text) : text.substr(dropped);
}

}  // namespace tessera::text
