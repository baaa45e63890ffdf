#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "services/decode/engine/record_reader.h"
#include "services/decode/engine/wanted_rows.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

struct RowFetcherOptions {
  int32_t threads = 4;              // reads at a time; at least 1
  size_t max_bytes = 256ull << 20;  // of rows being fetched; a larger job runs alone
};

// Rows to read for one sequence.
struct FetchJob {
  SequenceId id = 0;
  ReadContext asker;
  std::vector<WantedRows> pictures;
  size_t bytes = 0;  // what the rows will take, about
};

// A job that was done: its pictures in the order asked, with what was found.
struct FetchResult {
  SequenceId id = 0;
  std::vector<WantedRows> pictures;
};

// Reads records on threads of its own, in the order in which they were asked for, so that a slow
// store delays only who needs it. Of a request that has ended, or whose deadline has passed,
// nothing more is read. Any thread.
class RowFetcher {
 public:
  using Done = std::function<void(FetchResult)>;

  // `done` is called from the fetcher's threads, once per job. `clock` outlives the fetcher.
  RowFetcher(const RowFetcherOptions& options, RecordReader reader, base::Clock& clock, Done done);
  // Drops the jobs that have not begun and waits for the others.
  ~RowFetcher();
  RowFetcher(const RowFetcher&) = delete;
  RowFetcher& operator=(const RowFetcher&) = delete;

  // Never waits. The caller bounds the jobs: one per sequence at a time.
  void Fetch(FetchJob job);

 private:
  void Run();
  bool NextJob(FetchJob& job);
  bool Room() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Awaited(const ReadContext& asker) const;
  FetchResult Read(FetchJob job);

  const RowFetcherOptions options_;
  const RecordReader reader_;
  base::Clock& clock_;
  const Done done_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<FetchJob> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tessera::decode
