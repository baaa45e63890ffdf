// What the engine does with a message: the way of a request from its arrival into the scheduler.

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "services/decode/engine/engine_loop.h"

namespace tessera::decode {
namespace {

// Rounds of NeedRows after which rows are given up: a record may be evicted between its making and
// its reading, but not for ever.
constexpr int kMostRowRounds = 3;

}  // namespace

void EngineLoop::Handle(EngineMessage message) {
  std::visit([this](auto&& m) { On(std::move(m)); }, std::move(message));
}

void EngineLoop::On(NewRequest message) {
  ActiveRequest& request = *message.request;
  next_deadline_ = std::min(next_deadline_, request.deadline);
  requests_.emplace(request.sequence.id, std::move(message.request));
  if (!closed_.ok()) return End(request, closed_);
  if (absl::Status status = health(); !status.ok()) return End(request, status);
  scheduler_.Open(request.sequence);
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    if (!request.sequence.LacksRows(i)) request.pictures[i].outcome.tier = RowTier::kPrefixKv;
  }
  Proceed(request);
}

void EngineLoop::On(CancelRequest message) {
  const auto it = requests_.find(message.id);
  if (it != requests_.end()) End(*it->second, message.status);
}

void EngineLoop::On(ResumeRequest message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end() || !it->second->sequence.paused) return;
  ActiveRequest& request = *it->second;
  scheduler_.Resume(request.sequence);
  request.paused_since = absl::InfiniteFuture();
  const bool fetching = request.stage == Stage::kFetch || request.stage == Stage::kRows;
  if (request.sequence.state == Sequence::State::kOutside && !fetching) Proceed(request);
}

void EngineLoop::On(CancelAhead message) {
  std::vector<ActiveRequest*> ahead;
  for (const auto& [id, request] : requests_) {
    if (request->sequence.ahead()) ahead.push_back(request.get());
  }
  for (ActiveRequest* request : ahead) End(*request, message.status);
}

void EngineLoop::On(CancelAll message) {
  closed_ = std::move(message.status);
  EndAll(closed_);
}

// A sequence outside the scheduler: into the queue when every row that it needs is here, else off
// to fetch them.
void EngineLoop::Proceed(ActiveRequest& request) {
  Sequence& sequence = request.sequence;
  request.stage = Stage::kQueue;
  if (sequence.finish != FinishReason::kNone) return End(request, absl::OkStatus());
  if (sequence.paused) return;  // Resume brings it back
  if (sequence.LacksRows()) return Fetch(request);
  if (absl::Status status = scheduler_.Enqueue(sequence); !status.ok()) End(request, status);
}

// Reads the records whose rows are needed and not here.
void EngineLoop::Fetch(ActiveRequest& request) {
  const Sequence& sequence = request.sequence;
  FetchJob job;
  job.id = sequence.id;
  job.asker = {request.name, request.deadline, request.ended.get_token()};
  job.row_width = options_.row_width;
  for (size_t i = 0; i < sequence.pictures.size(); ++i) {
    if (!sequence.LacksRows(i)) continue;
    job.pictures.push_back(static_cast<int32_t>(i));
    job.keys.push_back(sequence.pictures[i].key);
    job.origins.push_back(sequence.pictures[i].origin);
    job.row_counts.push_back(sequence.pictures[i].rows);
    job.bytes +=
        static_cast<size_t>(sequence.pictures[i].rows * options_.row_width) * sizeof(float);
  }
  request.stage = Stage::kFetch;
  request.stage_begin = clock_.Now();
  hooks_.fetch(std::move(job));
}

void EngineLoop::On(FetchResult message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end()) return;  // ended meanwhile
  ActiveRequest& request = *it->second;
  // What is too late is not read, and nobody is to make it.
  if (const absl::Time now = clock_.Now(); request.deadline <= now) {
    return End(request, Expired(request, now));
  }
  EndStage(request);
  bool complete = true;
  for (size_t i = 0; i < message.pictures.size(); ++i) {
    const size_t picture = static_cast<size_t>(message.pictures[i]);
    if (message.records[i] == nullptr) {
      complete = false;
      request.pictures[picture].awaited = true;
      continue;
    }
    absl::Status status = TakeRecord(request, picture, {message.records[i], message.tiers[i]},
                                     std::move(message.rows[i]));
    if (!status.ok()) return End(request, status);
  }
  // Its pinned blocks may have gone meanwhile, and rows that it did not need then are needed now.
  if (complete) return Proceed(request);
  AskForRows(request);
}

absl::Status EngineLoop::TakeRecord(ActiveRequest& request, size_t picture, const ReadRecord& found,
                                    store::FloatRows rows) {
  const store::EmbeddingRecord& record = *found.record;
  const PromptPicture& asked = request.sequence.pictures[picture];
  if (record.rows != asked.rows || record.width != options_.row_width) {
    return base::BadField(
        "images", "ROWS_MISMATCH",
        absl::StrCat("record ", record.key.hex(), " has ", record.rows, " rows of ", record.width,
                     "; the reference says ", asked.rows, " and the model takes rows of ",
                     options_.row_width));
  }
  PictureOutcome& outcome = request.pictures[picture].outcome;
  outcome.bytes_moved = record.data.size();
  outcome.tier = found.tier;
  counted_.fetched_bytes += static_cast<int64_t>(record.data.size());
  request.sequence.rows[picture] = {rows.view, std::move(rows.owner)};
  return absl::OkStatus();
}

void EngineLoop::AskForRows(ActiveRequest& request) {
  if (request.sequence.ahead()) {
    request.sequence.finish = FinishReason::kDropped;
    return End(request, absl::OkStatus());
  }
  request.stage = Stage::kRows;
  request.stage_begin = clock_.Now();
  if (request.rows_asked++ == kMostRowRounds) {
    return End(request,
               base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "ROWS_MISSING",
                                           absl::StrCat("the rows of a picture could not be "
                                                        "read after they had been made ",
                                                        kMostRowRounds,
                                                        " times; ask again, or see "
                                                        "that decode reads vision's "
                                                        "(--vision_origins, --embedding_store)")),
                               absl::Seconds(1)));
  }
  std::vector<int32_t> missing;
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    if (!request.pictures[i].awaited) continue;
    missing.push_back(static_cast<int32_t>(i));
  }
  request.sink->OnNeedRows(missing);
}

void EngineLoop::On(RowsExist message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end() || it->second->stage != Stage::kRows) return;
  ActiveRequest& request = *it->second;
  for (const int32_t picture : message.pictures) {
    if (picture < 0 || picture >= static_cast<int32_t>(request.pictures.size())) continue;
    request.pictures[picture].awaited = false;
  }
  const bool awaiting = std::any_of(request.pictures.begin(), request.pictures.end(),
                                    [](const auto& picture) { return picture.awaited; });
  if (awaiting) return;
  EndStage(request);
  Proceed(request);
}

}  // namespace tessera::decode
