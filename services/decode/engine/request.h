#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/store/embedding_key.h"
#include "services/decode/engine/sampling_options.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// A picture in a prompt, by name: its rows come from the store.
struct PromptPicture {
  store::EmbeddingKey key;
  int32_t first_token = 0;
  int32_t rows = 0;
};

// What an answer is asked for with. REQUIRES: `ids` is not empty; its -1 are exactly the places of
// `pictures`, which ascend and stand apart.
struct Request {
  std::vector<int32_t> ids;  // -1 where a row of a picture stands
  std::vector<PromptPicture> pictures;
  SamplingOptions sampling;  // validated
  // Tokens of the answer at most; what the context or the KV cache has no room for is cut.
  int64_t max_tokens = 256;
  absl::Time arrival = absl::InfinitePast();  // of the call; InfinitePast: now
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<TokenSink> sink;
};

}  // namespace tessera::decode
