#pragma once

#include <cstdint>
#include <vector>

namespace tessera::decode {

struct PromptImage {
  int64_t rows = 0;  // visual tokens, at least 1
};

// Where the rows of a picture stand in a prompt.
struct ImagePlace {
  int32_t first_token = 0;
  int32_t rows = 0;
};

// A prompt, as the engine takes it.
struct PromptPlan {
  std::vector<int32_t> ids;        // of all of it; -1 where a row of a picture stands
  std::vector<ImagePlace> images;  // in message order, and so ascending; they cover exactly the -1
  int64_t text_tokens = 0;
  int64_t image_tokens = 0;  // text_tokens + image_tokens == ids.size()
};

}  // namespace tessera::decode
