#pragma once

#include <utility>
#include <vector>

#include "services/vision/encoder/encode_pipeline.h"

// For encode_pipeline*.cc only.
namespace tessera::vision {

// Passed from queue to queue; the thread that took it owns what is not marked.
struct EncodePipeline::Job {
  Job(EncodeTask&& task, absl::Time now) : task(std::move(task)), log(now) {}

  EncodeTask task;  // without `done`, which is a waiter's
  StageLog log;
  Prepared prepared;
  // Under mutex_:
  std::vector<Waiter> waiters;
  bool pending = true;    // counted in pending_*
  bool encoding = false;  // the tower has it
  bool dropped = false;   // nobody waits: stop at the next chance
};

}  // namespace tessera::vision
