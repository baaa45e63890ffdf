#include "services/gateway/answer/work_estimate.h"

#include <algorithm>

namespace tessera::gateway {
namespace {

constexpr int64_t kBytesPerToken = 4;  // of English; others have more tokens
constexpr int64_t kTokensPerTurn = 4;  // that a template adds
constexpr uint32_t kDefaultMaxTokens = 256;

}  // namespace

WorkEstimate EstimateWork(const ParsedRequest& parsed, ImageResolver& resolver,
                          uint32_t context_tokens) {
  WorkEstimate work;
  int64_t bytes = 0;
  for (const v1::DecodeMessage& message : parsed.start.messages()) {
    for (const v1::DecodePart& part : message.parts()) {
      bytes += static_cast<int64_t>(part.text().size());
    }
  }
  work.text_tokens =
      (bytes + kBytesPerToken - 1) / kBytesPerToken + kTokensPerTurn * parsed.start.messages_size();
  for (const Picture& picture : parsed.pictures) work.rows += resolver.ExpectedRows(picture);
  const v1::GenerationOptions& options = parsed.start.options();
  work.max_tokens = options.has_max_tokens() ? options.max_tokens() : kDefaultMaxTokens;
  work.tokens = work.text_tokens + work.rows + work.max_tokens;
  const int64_t room = int64_t{context_tokens} - work.text_tokens - work.rows;
  if (context_tokens == 0 || room >= work.max_tokens) return work;
  work.too_long = room < 1;
  work.max_tokens = static_cast<uint32_t>(std::max<int64_t>(room, 1));
  work.tokens = context_tokens;
  return work;
}

}  // namespace tessera::gateway
