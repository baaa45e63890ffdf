#include "services/vision/encoder/held_records.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::vision {

HeldRecords::Hold::Hold(HeldRecords& owner, store::RecordPtr record)
    : owner_(owner), record_(std::move(record)) {
  base::MutexLock lock(owner_.mutex_);
  Entry& entry = owner_.entries_[record_->key];
  if (entry.holders++ > 0) return;
  entry.bytes = record_->footprint();
  owner_.bytes_ += entry.bytes;
}

HeldRecords::Hold::~Hold() {
  base::MutexLock lock(owner_.mutex_);
  const auto it = owner_.entries_.find(record_->key);
  if (--it->second.holders > 0) return;
  owner_.bytes_ -= it->second.bytes;
  owner_.entries_.erase(it);
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
