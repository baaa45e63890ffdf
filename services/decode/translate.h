#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/rpc/trace/request_context.h"
#include "common/text/tokenizer.h"
#include "kernels/backend.h"
#include "services/decode/engine/request.h"
#include "services/decode/prompt/prompt_builder.h"
#include "tessera/v1/decode.pb.h"

// Messages of the wire to what decode works with, and back: nothing else happens here.
namespace tessera::decode {

// A DecodeStart that is well formed.
struct AskedFor {
  std::string tenant;
  std::vector<Message> messages;
  std::vector<PromptImage> images;      // in the order of the parts
  std::vector<PromptPicture> pictures;  // the images by name; their places are not known yet
  SamplingOptions sampling;             // the seed is drawn where none was given
  int64_t max_tokens = 256;
  std::vector<std::string> stops;
  int top_logprobs = -1;  // likeliest tokens to tell beside each chosen one; -1: tell nothing
};

// Takes the texts out of `start`. INVALID_ARGUMENT names the field. `row_width`: columns of a
// picture's row.
absl::StatusOr<AskedFor> ParseStart(v1::DecodeStart start, int64_t row_width);

// What the engine gets; sink, name and times are the caller's. REQUIRES: `plan` was built from
// `asked`.
Request ToRequest(AskedFor asked, PromptPlan plan);
// Of what is asked of others for `request`.
RequestName ToName(const rpc::RequestContext& request);

// With as many of the likeliest as `top` says.
v1::TokenLogprob ToTokenLogprob(const kernels::Sampled& sampled, int top,
                                const text::Tokenizer& tokenizer);

// `stop`: the stop text that ended the answer; empty when none did.
v1::DecodeEnd ToDecodeEnd(const Outcome& outcome, absl::string_view stop);

}  // namespace tessera::decode
