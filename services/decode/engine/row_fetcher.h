#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/store/rows.h"
#include "services/decode/engine/record_reader.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

struct RowFetcherOptions {
  int32_t threads = 4;              // reads at a time; at least 1
  size_t max_bytes = 256ull << 20;  // of rows being fetched; a larger job runs alone
};

// Records to read for one sequence.
struct FetchJob {
  SequenceId id = 0;
  ReadContext asker;
  int64_t row_width = 0;            // of every record; 0: any
  std::vector<int64_t> row_counts;  // of each record; absent: any
  std::vector<int32_t> pictures;    // positions in the sequence's pictures
  std::vector<store::EmbeddingKey> keys;
  std::vector<std::string> origins;  // of the keys; may be shorter: not known
  size_t bytes = 0;                  // what the rows will take, about
};

struct FetchResult {
  SequenceId id = 0;
  std::vector<int32_t> pictures;          // as asked
  std::vector<store::RecordPtr> records;  // null: nobody has it
  std::vector<RowTier> tiers;             // who had them
  std::vector<store::FloatRows> rows;     // of the records, as a device takes them
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
