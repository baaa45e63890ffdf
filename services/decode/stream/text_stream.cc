#include "services/decode/stream/text_stream.h"

#include <utility>

namespace tessera::decode {

TextStream::TextStream(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer), matcher_(std::move(stops)) {}

bool TextStream::Push(absl::Span<const int32_t> ids, std::string& out) {
  for (const int32_t id : ids) {
    if (matcher_.Push(decoder_.Add(id), out)) return true;
  }
  return matcher_.stopped();
}

bool TextStream::Finish(std::string& out) {
  matcher_.Push(decoder_.Flush(), out);
  return matcher_.Finish(out);
}

}  // namespace tessera::decode
