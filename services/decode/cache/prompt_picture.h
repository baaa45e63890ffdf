#pragma once

#include <cstdint>
#include <string>

#include "common/store/embedding_key.h"

namespace tessera::decode {

// A picture in a prompt, by name: its rows come from the store.
struct PromptPicture {
  store::EmbeddingKey key;
  int32_t first_token = 0;  // place of its first row in the prompt
  int32_t rows = 0;
  std::string origin = {};  // the replica that made the rows, as the request says

  int32_t end_token() const { return first_token + rows; }
};

}  // namespace tessera::decode
