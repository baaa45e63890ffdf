#include "services/decode/engine/row_fetcher.h"

#include <utility>

namespace tessera::decode {

RowFetcher::RowFetcher(const RowFetcherOptions& options, RecordReader reader, base::Clock& clock,
                       Done done)
    : options_(options), reader_(std::move(reader)), clock_(clock), done_(std::move(done)) {
  for (int32_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { Run(); });
}

RowFetcher::~RowFetcher() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

void RowFetcher::Fetch(FetchJob job) {
  base::MutexLock lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.Signal();
}

void RowFetcher::Run() {
  FetchJob job;
  while (NextJob(job)) {
    const size_t bytes = job.bytes;
    done_(Read(std::move(job)));
    base::MutexLock lock(mutex_);
    bytes_in_flight_ -= bytes;
    changed_.SignalAll();
  }
}

bool RowFetcher::NextJob(FetchJob& job) {
  base::MutexLock lock(mutex_);
  while (!stop_ && !Room()) changed_.Wait(mutex_);
  if (stop_) return false;
  job = std::move(jobs_.front());
  jobs_.pop_front();
  bytes_in_flight_ += job.bytes;
  return true;
}

bool RowFetcher::Room() const {
  if (jobs_.empty()) return false;
  return bytes_in_flight_ == 0 || bytes_in_flight_ + jobs_.front().bytes <= options_.max_bytes;
}

bool RowFetcher::Awaited(const ReadContext& asker) const {
  return !asker.ended.stop_requested() && clock_.Now() < asker.deadline;
}

FetchResult RowFetcher::Read(FetchJob job) {
  FetchResult result;
  result.id = job.id;
  result.pictures = std::move(job.pictures);
  result.records.reserve(job.keys.size());
  result.rows.reserve(job.keys.size());
  for (size_t i = 0; i < job.keys.size(); ++i) {
    ReadRecord read;
    if (Awaited(job.asker)) {
      read = reader_({job.keys[i], i < job.origins.size() ? job.origins[i] : "",
                      i < job.row_counts.size() ? job.row_counts[i] : 0, job.row_width},
                     job.asker);
    }
    const bool found = read.record != nullptr;
    result.records.push_back(std::move(read.record));
    result.tiers.push_back(read.tier);
    // int8 rows are widened here: the engine's thread has other things to do.
    result.rows.push_back(found ? store::ToFloatRows(result.records.back()) : store::FloatRows());
  }
  return result;
}

}  // namespace tessera::decode
