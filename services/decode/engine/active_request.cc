#include "services/decode/engine/active_request.h"

#include <algorithm>
#include <utility>

namespace tessera::decode {

const char* Name(Stage stage) {
  switch (stage) {
    case Stage::kFetch:
      return "FETCH";
    case Stage::kRows:
      return "ROWS";
    case Stage::kQueue:
      return "QUEUE";
    case Stage::kPrefill:
      return "PREFILL";
    case Stage::kGeneration:
      return "GENERATION";
  }
  return "UNKNOWN";
}

ActiveRequest::ActiveRequest(SequenceId id, Request request, int32_t max_tokens)
    : sink(std::move(request.sink)), deadline(request.deadline), arrival(request.arrival) {
  sequence.id = id;
  sequence.prompt = std::move(request.ids);
  sequence.sampling = request.sampling;
  sequence.max_tokens = max_tokens;
  pictures.reserve(request.pictures.size());
  for (PromptPicture& picture : request.pictures) {
    Picture& added = pictures.emplace_back();
    added.prompt = picture;
    added.outcome.rows = picture.rows;
  }
}

int32_t ActiveRequest::image_tokens() const {
  int32_t sum = 0;
  for (const Picture& picture : pictures) sum += picture.prompt.rows;
  return sum;
}

Outcome ActiveRequest::OutcomeAt(absl::Time now) const {
  Outcome outcome;
  outcome.finish = sequence.finish;
  outcome.prompt_tokens = sequence.prompt_tokens();
  outcome.image_tokens = image_tokens();
  outcome.output_tokens = static_cast<int32_t>(sequence.generated.size());
  outcome.fetch = fetch;
  const bool stepped = first_step != absl::InfinitePast();
  const bool answered = first_token != absl::InfinitePast();
  const absl::Duration until_step = (stepped ? first_step : now) - arrival;
  outcome.queue = std::max(until_step - fetch - rows_wait, absl::ZeroDuration());
  if (stepped) outcome.prefill = (answered ? first_token : now) - first_step;
  if (answered) outcome.generation = last_token - first_token;
  for (const Picture& picture : pictures) outcome.pictures.push_back(picture.outcome);
  outcome.kv_blocks_new = blocks_taken;
  return outcome;
}

}  // namespace tessera::decode
