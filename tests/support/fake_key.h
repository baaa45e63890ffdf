#pragma once

#include <cstdint>

#include "common/base/digest.h"
#include "common/store/embedding_key.h"

namespace tessera::testing {

// A key for each number.
inline store::EmbeddingKey FakeKey(uint8_t number) {
  base::Sha256Digest digest{};
  digest[0] = number;
  digest[31] = 1;
  return store::EmbeddingKey(digest);
}

}  // namespace tessera::testing
