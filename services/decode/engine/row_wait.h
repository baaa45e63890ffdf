#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "services/decode/engine/token_sink.h"
#include "services/decode/engine/wanted_rows.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// What a request knows of its pictures' rows: which have to be read, which nobody has and are
// awaited, where those that are here came from. Pure; the engine's thread only.
class RowWait {
 public:
  // `sequence` outlives it.
  explicit RowWait(Sequence& sequence);

  // The pictures whose rows are not needed came from the prefix cache. Once, when the scheduler has
  // matched the sequence.
  void NoteShared();
  // What has to be read: rows that are still to be computed and are not here. `row_width`: columns.
  std::vector<WantedRows> Wanted(int64_t row_width) const;
  // Hands the rows to the sequence; where no record was found the picture is awaited.
  // INVALID_ARGUMENT, ROWS_MISMATCH, for a record of another shape than wanted.
  absl::Status Take(WantedRows read);

  // Begins a round in which others make the awaited rows. UNAVAILABLE, ROWS_MISSING, when there
  // have been as many as there may be.
  absl::Status BeginRound();
  // The rows of these exist now; numbers of no picture are ignored.
  void Made(absl::Span<const int32_t> pictures);
  // Places of the pictures that are awaited.
  std::vector<int32_t> awaited() const;
  bool awaits() const;

  // In the order of the prompt.
  std::vector<PictureOutcome> outcomes() const;

 private:
  struct Picture {
    bool awaited = false;
    PictureOutcome outcome;
  };

  Sequence& sequence_;
  std::vector<Picture> pictures_;  // in the order of the prompt
  int rounds_ = 0;
};

}  // namespace tessera::decode
