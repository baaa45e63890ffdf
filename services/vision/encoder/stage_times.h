#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "absl/time/time.h"

namespace tessera::vision {

enum class Stage {
  kQueue,        // waiting for a turn
  kFetch,        // looking into the store
  kImageDecode,  // checking and decoding
  kPreprocess,   // resizing, normalising, judging quality
  kEncode,       // tower and connector
  kStore,        // making and writing the record
};

// Lower-case name, as in receipts.
inline const char* Name(Stage stage) {
  constexpr const char* kNames[] = {"queue",      "fetch",  "image_decode",
                                    "preprocess", "encode", "store"};
  return kNames[static_cast<size_t>(stage)];
}

// When a picture was in a stage.
struct StageSpan {
  Stage stage;
  absl::Time begin, end;
};

// How long one picture spent in each stage. A value.
class StageTimes {
 public:
  absl::Duration& operator[](Stage stage) { return times_[static_cast<size_t>(stage)]; }
  absl::Duration operator[](Stage stage) const { return times_[static_cast<size_t>(stage)]; }
  StageTimes& operator+=(const StageTimes& other) {
    for (size_t i = 0; i < times_.size(); ++i) times_[i] += other.times_[i];
    return *this;
  }

 private:
  std::array<absl::Duration, 6> times_{};
};

// When the stages of one picture were, without gaps. One thread at a time.
class StageLog {
 public:
  explicit StageLog(absl::Time start) : mark_(start) {}

  // What was done since the last mark was `stage`.
  void Mark(Stage stage, absl::Time now) {
    spans_.push_back({stage, mark_, now});
    mark_ = now;
  }

  // What of it a request saw that joined at `joined`.
  StageTimes Since(absl::Time joined) const {
    StageTimes times;
    for (const StageSpan& span : spans_) {
      times[span.stage] += std::max(absl::ZeroDuration(), span.end - std::max(span.begin, joined));
    }
    return times;
  }

  // When that was.
  std::vector<StageSpan> SpansSince(absl::Time joined) const {
    std::vector<StageSpan> seen;
    for (StageSpan span : spans_) {
      span.begin = std::max(span.begin, joined);
      if (span.begin < span.end) seen.push_back(span);
    }
    return seen;
  }

 private:
  absl::Time mark_;
  std::vector<StageSpan> spans_;
};

}  // namespace tessera::vision
