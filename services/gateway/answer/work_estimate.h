#pragma once

#include <cstdint>

#include "services/gateway/answer/parse_request.h"
#include "services/gateway/pictures/image_resolver.h"

namespace tessera::gateway {

// What a request is likely to take in decode, before anybody has counted its tokens.
struct WorkEstimate {
  int64_t text_tokens = 0;  // of the prompt, without pictures
  int64_t rows = 0;         // of its pictures
  uint32_t max_tokens = 0;  // of the answer, at most
  int64_t tokens = 0;       // all of these, not more than the context has
  bool too_long = false;    // for the context, it seems: decode counts, and tells the client
};

// A token for 4 bytes of text, 4 more for each turn; the rows that vision planned or is expected to
// plan. `context_tokens`: that prompt and answer have together at most; 0: not known.
WorkEstimate EstimateWork(const ParsedRequest& parsed, ImageResolver& resolver,
                          uint32_t context_tokens);

}  // namespace tessera::gateway
