#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/decode/cache/block_hash.h"
#include "services/decode/cache/prompt_picture.h"
#include "services/decode/engine/request_name.h"
#include "services/decode/engine/token_sink.h"
#include "services/decode/schedule/sampling_options.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// What an answer is asked for with. REQUIRES: `ids` is not empty; its -1 are exactly the places of
// `pictures`, which ascend and stand apart.
struct Request {
  RequestName name;
  std::string tenant;  // shares no KV with other tenants
  // kAhead: computes `ids` for those who will begin so, and gives no answer.
  Priority priority = Priority::kQuestion;
  std::vector<int32_t> ids;  // -1 where a row of a picture stands
  std::vector<PromptPicture> pictures;
  // Names of the full blocks of `ids`; Engine::Submit fills them in.
  BlockHash root{};
  std::vector<BlockHash> chain;
  SamplingOptions sampling;  // validated
  // Tokens of the answer at most, 0 for kAhead; what the context or the KV cache has no room for is
  // cut.
  int64_t max_tokens = 256;
  absl::Time arrival = absl::InfinitePast();  // of the call; InfinitePast: now
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<TokenSink> sink;
};

}  // namespace tessera::decode
