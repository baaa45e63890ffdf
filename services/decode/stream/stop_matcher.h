#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::decode {

inline constexpr size_t kMaxStops = 16;
inline constexpr size_t kMaxStopBytes = 256;

// INVALID_ARGUMENT naming options.stop: too many, too long, an empty one.
absl::Status ValidateStops(const std::vector<std::string>& stops);

// Cuts a text that comes in pieces before its first stop, whatever the pieces. The first stop is
// the one that begins first in the whole text; of those that begin at one place, the shortest. Text
// is held back only while it may still become a stop, and no character of the stop is ever given
// out. One thread. Memory: the held text, less than the longest stop plus one piece.
class StopMatcher {
 public:
  // REQUIRES: ValidateStops(stops) is OK.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds `piece` and appends to `out` what is safe. True once the text has ended at a stop; pieces
  // after that are ignored. Allocates nothing once `out` and the held text are warm.
  bool Push(absl::string_view piece, std::string& out);
  // The text is complete: appends the held tail, or, where a stop was complete but an earlier one
  // still open, what stands before it. True when the text ended at a stop.
  bool Finish(std::string& out);

  bool stopped() const { return stop_ != nullptr; }
  // The stop that ended the text; empty when none did.
  absl::string_view stop() const { return stop_ ? *stop_ : absl::string_view(); }

 private:
  struct Match {
    size_t begin;
    const std::string* stop;  // null: none
  };
  Match FirstComplete() const;
  size_t FirstOpen() const;

  const std::vector<std::string> stops_;
  std::string tail_;
  const std::string* stop_ = nullptr;
};

}  // namespace tessera::decode
