#include "services/decode/stream/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::decode {

absl::Status ValidateStops(const std::vector<std::string>& stops) {
  constexpr char kField[] = "options.stop";
  if (stops.size() > kMaxStops) {
    return base::BadField(kField, "STOP_INVALID",
                          absl::StrCat(stops.size(), " stops; at most ", kMaxStops));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || stops[i].size() > kMaxStopBytes) {
      return base::BadField(kField, "STOP_INVALID",
                            absl::StrCat("stop ", i, " has ", stops[i].size(), " bytes; 1 to ",
                                         kMaxStopBytes, " are allowed"));
    }
  }
  return absl::OkStatus();
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  CHECK(ValidateStops(stops_).ok());
}

// The complete stop in the held text that begins first; of those at one place the shortest.
StopMatcher::Match StopMatcher::FirstComplete() const {
  Match first{tail_.size(), nullptr};
  for (const std::string& stop : stops_) {
    const size_t begin = tail_.find(stop);
    if (begin == std::string::npos) continue;
    const bool better = begin < first.begin || first.stop == nullptr ||
                        (begin == first.begin && stop.size() < first.stop->size());
    if (better) first = {begin, &stop};
  }
  return first;
}

// The first place from which the rest of the held text may still grow into a stop; the text's size
// when there is none.
size_t StopMatcher::FirstOpen() const {
  size_t first = tail_.size();
  for (const std::string& stop : stops_) {
    const size_t longest = std::min(stop.size() - 1, tail_.size());
    for (size_t tail = longest; tail > tail_.size() - first; --tail) {
      if (tail_.compare(tail_.size() - tail, tail, stop, 0, tail) == 0) {
        first = tail_.size() - tail;
        break;
      }
    }
  }
  return first;
}

bool StopMatcher::Push(absl::string_view piece, std::string& out) {
  if (stopped()) return true;
  if (stops_.empty()) {
    out.append(piece.data(), piece.size());
    return false;
  }
  tail_.append(piece.data(), piece.size());
  const Match match = FirstComplete();
  const size_t open = FirstOpen();
  const size_t safe = std::min(match.begin, open);
  out.append(tail_, 0, safe);
  tail_.erase(0, safe);
  // An open place before the match may become a stop that begins earlier: wait for it.
  if (match.stop == nullptr || open < match.begin) return false;
  stop_ = match.stop;
  tail_.clear();
  return true;
}

bool StopMatcher::Finish(std::string& out) {
  if (stopped()) return true;
  const Match match = FirstComplete();
  out.append(tail_, 0, match.begin);
  tail_.clear();
  stop_ = match.stop;
  return stopped();
}

}  // namespace tessera::decode
