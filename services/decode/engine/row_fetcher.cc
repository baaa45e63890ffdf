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
  for (WantedRows& wanted : job.pictures) {
    if (!Awaited(job.asker)) break;
    wanted.found = reader_(wanted.record, job.asker);
    // int8 rows are widened here: the engine's thread has other things to do.
    if (wanted.found.record != nullptr) wanted.rows = store::ToFloatRows(wanted.found.record);
  }
  return {job.id, std::move(job.pictures)};
}

}  // namespace tessera::decode
