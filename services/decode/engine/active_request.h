#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/store/embedding_record.h"
#include "services/decode/engine/request.h"
#include "services/decode/engine/sequence.h"
#include "services/decode/engine/token_sink.h"

namespace tessera::decode {

// Where a request stands.
enum class Stage { kFetch, kRows /* waits for RowsReady */, kQueue, kPrefill, kGeneration };

// Upper-case name for errors, such as "QUEUE".
const char* Name(Stage stage);

// A request inside the engine: the sequence and what only the engine needs. The engine's thread
// only.
struct ActiveRequest {
  // Takes what `request` asks for. `max_tokens` is already cut to what fits.
  ActiveRequest(SequenceId id, Request request, int32_t max_tokens);

  struct Picture {
    PromptPicture prompt;
    store::RecordPtr record;  // null: not here yet, or not needed any more
    bool awaited = false;     // asked for by NeedRows
    PictureOutcome outcome;
  };

  Sequence sequence;
  std::shared_ptr<TokenSink> sink;
  std::vector<Picture> pictures;  // in the order of the prompt
  absl::Time deadline;

  Stage stage = Stage::kQueue;
  int rows_asked = 0;  // NeedRows sent so far

  absl::Time arrival;
  absl::Time stage_begin;    // of kFetch and kRows
  absl::Duration fetch;      // sum
  absl::Duration rows_wait;  // sum
  absl::Time first_step = absl::InfinitePast();
  absl::Time first_token = absl::InfinitePast();
  absl::Time last_token = absl::InfinitePast();
  int32_t blocks_taken = 0;

  int32_t image_tokens() const;
  // What it cost until `now`.
  Outcome OutcomeAt(absl::Time now) const;
};

}  // namespace tessera::decode
