#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/store/embedding_key.h"
#include "common/store/embedding_record.h"
#include "services/vision/encoder/pending_pictures.h"
#include "services/vision/encoder/stage_times.h"

namespace tessera::vision {

using WaiterId = uint64_t;

struct Encoded {
  store::RecordPtr record;
  bool existed = false;               // found in the store after all
  StageTimes stages;                  // as the waiter saw them
  std::vector<StageSpan> spans = {};  // as the waiter saw them
};

struct EncodeTask {
  store::EmbeddingKey key;
  std::string bytes;  // the encoded picture, checked against the key's digest
  std::unique_ptr<PendingPictures::Room> room;  // of `bytes`, from the pipeline that gets them
  size_t decode_bytes = 0;                      // ImageHeader's estimate
  int grid_height = 0, grid_width = 0;
  // Called exactly once if Submit returned OK, from a thread of the pipeline or inside Cancel or
  // the destructor. Must not block.
  std::function<void(absl::StatusOr<Encoded>)> done;
};

// A picture that is ready for the tower.
struct Prepared {
  int height = 0, width = 0;             // pixels
  std::vector<float> pixel_values;       // [3, height, width]
  std::map<std::string, double> scores;  // quality
  absl::Duration quality;                // of preprocessing: scoring and judging
};

// One picture on its way through the pipeline. Passed from stage to stage: the thread that took it
// from a queue owns what is not marked.
struct EncodeJob {
  struct Waiter {
    WaiterId id;
    absl::Time joined;
    std::function<void(absl::StatusOr<Encoded>)> done;
  };
  enum class Place { kPrepareQueue, kPreparing, kEncodeQueue, kEncoding, kOver };

  EncodeJob(EncodeTask&& task, absl::Time now) : task(std::move(task)), log(now) {}

  EncodeTask task;  // without `done`, which is a waiter's
  StageLog log;
  Prepared prepared;
  // Of JobsInFlight, under its lock:
  std::vector<Waiter> waiters;
  Place place = Place::kPrepareQueue;
  bool dropped = false;  // nobody waits: stop at the next chance
};
using JobPtr = std::shared_ptr<EncodeJob>;

}  // namespace tessera::vision
