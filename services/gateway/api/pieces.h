#pragma once

#include <cstddef>

#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// Appends a later piece to `to`.
void Append(v1::TextPiece piece, v1::TextPiece& to);

// Memory that a piece takes, about.
size_t PieceBytes(const v1::TextPiece& piece);

}  // namespace tessera::gateway
