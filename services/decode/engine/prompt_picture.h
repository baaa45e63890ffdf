#pragma once

#include <cstdint>

#include "common/store/embedding_key.h"

namespace tessera::decode {

// A picture in a prompt, by name: its rows come from the store.
struct PromptPicture {
  store::EmbeddingKey key;
  int32_t first_token = 0;  // place of its first row in the prompt
  int32_t rows = 0;

  int32_t end_token() const { return first_token + rows; }
};

}  // namespace tessera::decode
