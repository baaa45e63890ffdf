#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/admission/deadline_ladder.h"
#include "services/gateway/pictures/picture_options.h"

namespace tessera::gateway {

// What a request may ask for, and what becomes of one that would be late.
struct AnswerOptions : PictureOptions {
  std::string model_name;  // what clients may write as `model`
  int max_images = 16;     // of one request
  // What is changed of a request that would miss its deadline, in this order; empty: nothing.
  std::vector<LadderStep> deadline_ladder = {LadderStep::kRows, LadderStep::kOutput,
                                             LadderStep::kRedirect, LadderStep::kRefuse};
  uint32_t min_output_tokens = 16;  // an answer is not made shorter than this for its deadline
  absl::Duration slow_client_timeout = absl::Seconds(10);  // a client that reads nothing: aborted
  std::string quality_warning =
      "(The picture is of low quality; say so if it makes the answer uncertain.)";
};

}  // namespace tessera::gateway
