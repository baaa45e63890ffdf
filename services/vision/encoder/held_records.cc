#include "services/vision/encoder/held_records.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::vision {

HeldRecords::Hold::Hold(HeldRecords& all, store::RecordPtr record)
    : all_(all), record_(std::move(record)) {
  base::MutexLock lock(all_.mutex_);
  Entry& entry = all_.entries_[record_->key];
  if (entry.holders++ > 0) return;
  entry.bytes = record_->footprint();
  all_.bytes_ += entry.bytes;
}

HeldRecords::Hold::~Hold() {
  base::MutexLock lock(all_.mutex_);
  const auto it = all_.entries_.find(record_->key);
  if (--it->second.holders > 0) return;
  all_.bytes_ -= it->second.bytes;
  all_.entries_.erase(it);
}

absl::Status HeldRecords::Admit(const store::EmbeddingKey& key) const {
  base::MutexLock lock(mutex_);
  if (bytes_ < max_bytes_ || entries_.contains(key)) return absl::OkStatus();
  return base::WithRetry(
      base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat("rows of ", bytes_, " bytes wait to be read already; try again")),
      absl::Seconds(1));
}

size_t HeldRecords::bytes() const {
  base::MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace tessera::vision
