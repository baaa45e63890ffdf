#include "services/gateway/api/pieces.h"

#include <utility>

namespace tessera::gateway {
namespace {

constexpr size_t kLogprobBytes = 256;  // of one token's, about

}  // namespace

void Append(v1::TextPiece piece, v1::TextPiece& to) {
  to.mutable_text()->append(piece.text());
  for (v1::TokenLogprob& token : *piece.mutable_logprobs()) *to.add_logprobs() = std::move(token);
}

size_t PieceBytes(const v1::TextPiece& piece) {
  return piece.text().size() + static_cast<size_t>(piece.logprobs_size()) * kLogprobBytes;
}

}  // namespace tessera::gateway
