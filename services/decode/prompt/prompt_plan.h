#pragma once

#include <cstdint>
#include <vector>

namespace tessera::decode {

struct PromptImage {
  int64_t rows = 0;  // visual tokens, at least 1
};

// A stretch of the prompt: token ids, or the rows of one picture.
struct Segment {
  bool is_image = false;
  int image = -1;            // which one, in message order; of a picture
  std::vector<int32_t> ids;  // of text
  int64_t rows = 0;          // of a picture: all its rows, in order
};

struct PromptPlan {
  std::vector<Segment> segments;  // never two of text side by side, none empty
  std::vector<int32_t> ids;       // all of it, the image token repeated for each row
  int64_t text_tokens = 0;
  int64_t image_tokens = 0;  // text_tokens + image_tokens == ids.size()
};

}  // namespace tessera::decode
