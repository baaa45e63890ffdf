#pragma once

#include <array>
#include <string>
#include <vector>

#include "tests/support/tiny_models.h"

namespace tessera::testing {

// A decoder that the goldens lack, and what it answers to VariantIds(): the first four logits of
// the last prompt token and of the last forced token.
struct Variant {
  std::string name;
  TinyModelOptions options;
  std::array<float, 4> after_prompt;
  std::array<float, 4> after_forced;
};

inline constexpr int64_t kVariantPrompt = 40;

// A prompt of 40 tokens and three forced ones.
inline std::vector<int32_t> VariantIds() {
  std::vector<int32_t> ids = {1};
  while (ids.size() < kVariantPrompt + 3) {
    ids.push_back(static_cast<int32_t>(3 + (ids.size() * 37) % 90));
  }
  return ids;
}

// Expected values: LlavaForConditionalGeneration of transformers 5.24.0 with torch 2.9.0, f32 from
// the stored weights, the prompt at once and then token by token with a cache.
std::vector<Variant> Variants();

}  // namespace tessera::testing
