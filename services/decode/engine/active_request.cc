#include "services/decode/engine/active_request.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::decode {
namespace {

// Each token of the prompt once; room for those of the answer.
std::vector<kernels::SeenToken> SeenIn(absl::Span<const int32_t> prompt, int32_t max_tokens) {
  std::vector<int32_t> ids(prompt.begin(), prompt.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::vector<kernels::SeenToken> seen;
  seen.reserve(ids.size() + max_tokens);
  for (const int32_t id : ids) {
    if (id >= 0) seen.push_back({id, 0});
  }
  return seen;
}

// Takes ids, pictures, chain and options out of `request`.
Sequence ToSequence(SequenceId id, Request& request, int32_t max_tokens) {
  Sequence sequence;
  sequence.id = id;
  sequence.tenant = std::move(request.tenant);
  sequence.priority = request.priority;
  sequence.prompt = std::move(request.ids);
  sequence.pictures = std::move(request.pictures);
  sequence.rows.resize(sequence.pictures.size());
  sequence.root = request.root;
  sequence.chain = std::move(request.chain);
  sequence.sampling = std::move(request.sampling);
  sequence.max_tokens = max_tokens;
  if (sequence.sampling.penalizes()) sequence.seen = SeenIn(sequence.prompt, max_tokens);
  return sequence;
}

}  // namespace

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
    : sequence(ToSequence(id, request, max_tokens)),
      rows(sequence),
      name(std::move(request.name)),
      sink(std::move(request.sink)),
      deadline(request.deadline),
      arrival(request.arrival) {}

int32_t ActiveRequest::image_tokens() const {
  int32_t sum = 0;
  for (const PromptPicture& picture : sequence.pictures) sum += picture.rows;
  return sum;
}

void ActiveRequest::BeginWait(Stage wait, absl::Time now) {
  stage = wait;
  wait_begin = now;
}

void ActiveRequest::EndWait(absl::Time now) {
  const absl::Duration time = now - wait_begin;
  if (stage == Stage::kFetch && !stepped()) {
    if (fetch == absl::ZeroDuration()) first_fetch = wait_begin;
    fetch += time;
  }
  if (stage == Stage::kRows && !stepped()) rows_wait += time;
  stage = Stage::kQueue;
}

absl::Status ActiveRequest::ExpiredAt(absl::Time now) const {
  if (deadline > now) {
    return base::Error(
        absl::StatusCode::kResourceExhausted, "SLOW_CLIENT",
        absl::StrCat("the client has not read its answer for ",
                     absl::FormatDuration(now - paused_since), "; the request was aborted"));
  }
  const char* name_of_stage = Name(stage);
  return base::Error(absl::StatusCode::kDeadlineExceeded,
                     absl::StrCat("DEADLINE_IN_", name_of_stage),
                     absl::StrCat("the deadline passed in stage ", name_of_stage, " after ",
                                  absl::FormatDuration(now - arrival)));
}

Outcome ActiveRequest::OutcomeAt(absl::Time now) const {
  Outcome outcome;
  outcome.finish = sequence.finish;
  outcome.prompt_tokens = sequence.prompt_tokens();
  outcome.image_tokens = image_tokens();
  outcome.cached_tokens = sequence.cached_tokens;
  outcome.ahead_tokens = sequence.ahead_tokens;
  outcome.computed_tokens = sequence.computed_tokens;
  outcome.output_tokens = static_cast<int32_t>(sequence.generated.size());
  outcome.fetch = fetch;
  outcome.first_fetch = first_fetch;
  outcome.first_step = first_step;
  const bool answered = first_token != absl::InfinitePast();
  const absl::Duration until_step = (stepped() ? first_step : now) - arrival;
  outcome.queue = std::max(until_step - fetch - rows_wait, absl::ZeroDuration());
  if (stepped()) outcome.prefill = (answered ? first_token : now) - first_step;
  if (answered) outcome.generation = last_token - first_token;
  outcome.pictures = rows.outcomes();
  outcome.kv_blocks_new = sequence.blocks_taken;
  outcome.kv_blocks_reused = sequence.blocks_reused;
  outcome.preemptions = sequence.preemptions;
  return outcome;
}

}  // namespace tessera::decode
