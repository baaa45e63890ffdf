#include "services/decode/engine/row_wait.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/error.h"

namespace tessera::decode {
namespace {

// Rounds after which rows are given up: a record may be evicted between its making and its reading,
// but not for ever.
constexpr int kMostRounds = 3;

}  // namespace

RowWait::RowWait(Sequence& sequence) : sequence_(sequence), pictures_(sequence.pictures.size()) {
  for (size_t i = 0; i < pictures_.size(); ++i) {
    pictures_[i].outcome.rows = sequence.pictures[i].rows;
  }
}

void RowWait::NoteShared() {
  for (size_t i = 0; i < pictures_.size(); ++i) {
    if (!sequence_.LacksRows(i)) pictures_[i].outcome.tier = RowTier::kPrefixKv;
  }
}

std::vector<WantedRows> RowWait::Wanted(int64_t row_width) const {
  std::vector<WantedRows> wanted;
  for (size_t i = 0; i < pictures_.size(); ++i) {
    if (!sequence_.LacksRows(i)) continue;
    const PromptPicture& picture = sequence_.pictures[i];
    wanted.push_back(
        {static_cast<int32_t>(i), {picture.key, picture.origin, picture.rows, row_width}});
  }
  return wanted;
}

absl::Status RowWait::Take(WantedRows read) {
  const size_t place = static_cast<size_t>(read.picture);
  Picture& picture = pictures_[place];
  if (read.found.record == nullptr) {
    picture.awaited = true;
    return absl::OkStatus();
  }
  const store::EmbeddingRecord& record = *read.found.record;
  if (record.rows != read.record.rows || record.width != read.record.width) {
    return base::BadField(
        "images", "ROWS_MISMATCH",
        absl::StrCat("record ", record.key.hex(), " has ", record.rows, " rows of ", record.width,
                     "; the reference says ", read.record.rows, " and the model takes rows of ",
                     read.record.width));
  }
  picture.outcome.bytes_moved = record.data.size();
  picture.outcome.tier = read.found.tier;
  sequence_.rows[place] = {read.rows.view, std::move(read.rows.owner)};
  return absl::OkStatus();
}

absl::Status RowWait::BeginRound() {
  if (rounds_ == kMostRounds) {
    return base::WithRetry(
        base::Error(
            absl::StatusCode::kUnavailable, "ROWS_MISSING",
            absl::StrCat("the rows of a picture could not be read after they had been made ",
                         kMostRounds,
                         " times; ask again, or see that decode reads vision's "
                         "(--vision_origins, --embedding_store)")),
        absl::Seconds(1));
  }
  ++rounds_;
  return absl::OkStatus();
}

void RowWait::Made(absl::Span<const int32_t> pictures) {
  for (const int32_t picture : pictures) {
    if (picture < 0 || picture >= static_cast<int32_t>(pictures_.size())) continue;
    pictures_[picture].awaited = false;
  }
}

std::vector<int32_t> RowWait::awaited() const {
  std::vector<int32_t> awaited;
  for (size_t i = 0; i < pictures_.size(); ++i) {
    if (pictures_[i].awaited) awaited.push_back(static_cast<int32_t>(i));
  }
  return awaited;
}

bool RowWait::awaits() const {
  return std::any_of(pictures_.begin(), pictures_.end(),
                     [](const Picture& picture) { return picture.awaited; });
}

std::vector<PictureOutcome> RowWait::outcomes() const {
  std::vector<PictureOutcome> outcomes;
  outcomes.reserve(pictures_.size());
  for (const Picture& picture : pictures_) outcomes.push_back(picture.outcome);
  return outcomes;
}

}  // namespace tessera::decode
