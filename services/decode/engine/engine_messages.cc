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
  if (request.pictures.empty()) return Schedule(request);
  Fetch(request);
}

void EngineLoop::On(CancelRequest message) {
  const auto it = requests_.find(message.id);
  if (it != requests_.end()) End(*it->second, message.status);
}

void EngineLoop::On(CancelAll message) {
  closed_ = std::move(message.status);
  EndAll(closed_);
}

// Reads the records that the request does not hold yet.
void EngineLoop::Fetch(ActiveRequest& request) {
  FetchJob job;
  job.id = request.sequence.id;
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    const ActiveRequest::Picture& picture = request.pictures[i];
    if (picture.record != nullptr) continue;
    job.pictures.push_back(static_cast<int32_t>(i));
    job.keys.push_back(picture.prompt.key);
    job.bytes += static_cast<size_t>(picture.prompt.rows * options_.row_width) * sizeof(float);
  }
  request.stage = Stage::kFetch;
  request.stage_begin = clock_.Now();
  hooks_.fetch(std::move(job));
}

void EngineLoop::On(FetchResult message) {
  const auto it = requests_.find(message.id);
  if (it == requests_.end()) return;  // ended meanwhile
  ActiveRequest& request = *it->second;
  const absl::Time now = clock_.Now();
  request.fetch += now - request.stage_begin;
  request.stage_begin = now;
  bool complete = true;
  for (size_t i = 0; i < message.pictures.size(); ++i) {
    ActiveRequest::Picture& picture = request.pictures[message.pictures[i]];
    if (message.records[i] == nullptr) {
      complete = false;
      picture.awaited = true;
      continue;
    }
    if (absl::Status status = TakeRecord(picture, std::move(message.records[i])); !status.ok()) {
      request.stage = Stage::kQueue;
      return End(request, status);
    }
  }
  if (complete) return Schedule(request);
  AskForRows(request);
}

absl::Status EngineLoop::TakeRecord(ActiveRequest::Picture& picture, store::RecordPtr record) {
  if (record->rows != picture.prompt.rows || record->width != options_.row_width) {
    return base::BadField(
        "images", "ROWS_MISMATCH",
        absl::StrCat("record ", record->key.hex(), " has ", record->rows, " rows of ",
                     record->width, "; the reference says ", picture.prompt.rows,
                     " and the model takes rows of ", options_.row_width));
  }
  picture.outcome.bytes_moved = record->data.size();
  picture.outcome.tier =
      picture.outcome.tier == RowTier::kNone ? RowTier::kLocal : picture.outcome.tier;
  counted_.fetched_bytes += static_cast<int64_t>(record->data.size());
  picture.record = std::move(record);
  return absl::OkStatus();
}

void EngineLoop::AskForRows(ActiveRequest& request) {
  request.stage = Stage::kRows;
  if (request.rows_asked++ == kMostRowRounds) {
    return End(request,
               base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "ROWS_MISSING",
                                           absl::StrCat("the rows of a picture were not in the "
                                                        "store after they had been made ",
                                                        kMostRowRounds, " times; ask again")),
                               absl::Seconds(1)));
  }
  std::vector<int32_t> missing;
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    if (!request.pictures[i].awaited) continue;
    request.pictures[i].outcome.tier = RowTier::kComputed;
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
  request.rows_wait += clock_.Now() - request.stage_begin;
  Fetch(request);
}

// Every row is here: the sequence waits for its turn.
void EngineLoop::Schedule(ActiveRequest& request) {
  request.stage = Stage::kQueue;
  for (const ActiveRequest::Picture& picture : request.pictures) {
    PictureRows rows;
    rows.first_token = picture.prompt.first_token;
    rows.rows = picture.record->view();
    rows.owner = picture.record;
    request.sequence.pictures.push_back(std::move(rows));
  }
  if (absl::Status status = scheduler_.Add(request.sequence); !status.ok()) End(request, status);
}

}  // namespace tessera::decode
