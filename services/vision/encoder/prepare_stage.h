#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/embedding_store.h"
#include "services/vision/encoder/encode_job.h"
#include "services/vision/encoder/jobs_in_flight.h"
#include "services/vision/image/picture.h"

namespace tessera::vision {

// What is done with a picture before the tower. Pure; called from several threads at once.
struct PrepareSteps {
  // Any error where `wanted` says that nobody waits any more.
  std::function<absl::StatusOr<RgbImage>(absl::string_view bytes, const StillWanted& wanted)>
      decode;
  // Quality is scored, and refused, here.
  std::function<absl::StatusOr<Prepared>(const RgbImage& image)> preprocess;
};

struct PrepareOptions {
  int threads = 2;
  size_t max_decode_bytes = 512ull << 20;  // by estimate, of all pictures being decoded together
};

// References outlive the stage.
struct PrepareDeps {
  JobsInFlight& jobs;
  store::EmbeddingStore& store;
  base::Clock& clock;
  std::function<void(JobPtr)> next;  // gets what is prepared, at kEncodeQueue
};

// The threads that look once more for a job's record, then decode and preprocess its picture, in
// the order in which they come. Any thread.
class PrepareStage {
 public:
  PrepareStage(const PrepareOptions& options, PrepareSteps steps, PrepareDeps deps);
  // Ends what it has begun; what waits is left. REQUIRES: the jobs have been stopped.
  ~PrepareStage();

  void Push(JobPtr job);
  // Of a job that was dropped: true where it waited here. Who has it in hand looks soon.
  bool Remove(const JobPtr& job);

 private:
  void Loop();
  void Prepare(const JobPtr& job);
  bool Lookup(const JobPtr& job);
  absl::Status DecodeAndPreprocess(EncodeJob& job);
  absl::Status DecodeAndPreprocessWithRoom(EncodeJob& job);

  const PrepareOptions options_;
  const PrepareSteps steps_;
  const PrepareDeps deps_;
  base::Mutex mutex_;
  base::CondVar ready_, decode_room_;
  std::deque<JobPtr> queue_ ABSL_GUARDED_BY(mutex_);
  size_t decode_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // last: they use everything above
};

}  // namespace tessera::vision
