#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/decode/engine/request.h"
#include "services/decode/engine/row_wait.h"
#include "services/decode/engine/token_sink.h"
#include "services/decode/schedule/sequence.h"

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
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  Sequence sequence;
  RowWait rows;  // of `sequence`
  RequestName name;
  std::stop_source ended;  // for who works for it elsewhere
  std::shared_ptr<TokenSink> sink;
  absl::Time deadline;

  Stage stage = Stage::kQueue;
  absl::Time arrival;
  absl::Time wait_begin;                          // of kFetch and kRows
  absl::Time first_fetch = absl::InfinitePast();  // its begin, before the first step
  absl::Duration fetch;                           // sum before the first step
  absl::Duration rows_wait;                       // sum before the first step
  absl::Time first_step = absl::InfinitePast();
  absl::Time first_token = absl::InfinitePast();
  absl::Time last_token = absl::InfinitePast();
  absl::Time paused_since = absl::InfiniteFuture();

  int32_t image_tokens() const;
  // No step can compute it now: it waits for its rows or for its reader.
  bool outside() const {
    return stage == Stage::kFetch || stage == Stage::kRows ||
           paused_since != absl::InfiniteFuture();
  }
  bool stepped() const { return first_step != absl::InfinitePast(); }
  // From `now` on its rows are read (kFetch), or made by others (kRows).
  void BeginWait(Stage wait, absl::Time now);
  // The wait for rows, if there is one, is over. After the first step its time is part of prefill
  // or generation, and not counted.
  void EndWait(absl::Time now);
  // When it is ended for taking too long.
  absl::Time Expiry(absl::Duration slow_client_timeout) const {
    return std::min(deadline, paused_since + slow_client_timeout);
  }
  // What it is ended with at its expiry. DEADLINE_EXCEEDED, DEADLINE_IN_<stage>, or
  // RESOURCE_EXHAUSTED, SLOW_CLIENT.
  absl::Status ExpiredAt(absl::Time now) const;
  // What it cost until `now`.
  Outcome OutcomeAt(absl::Time now) const;
};

}  // namespace tessera::decode
