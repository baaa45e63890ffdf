#include "services/vision/encoder/held_records.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"

namespace tessera::vision {

absl::StatusOr<std::unique_ptr<HeldRecords::Hold>> HeldRecords::Admit(
    const store::EmbeddingKey& key, size_t expected) {
  base::MutexLock lock(mutex_);
  const auto known = entries_.find(key);
  if (known != entries_.end()) {
    ++known->second.holders;
    return std::unique_ptr<Hold>(new Hold(*this, key));
  }
  if (bytes_ > 0 && (bytes_ >= max_bytes_ || expected > max_bytes_ - bytes_)) {
    return base::WithRetry(
        base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                    absl::StrCat("rows of ", bytes_, " bytes wait to be read already; try again")),
        absl::Seconds(1));
  }
  entries_[key] = {.bytes = expected, .holders = 1};
  bytes_ += expected;
  return std::unique_ptr<Hold>(new Hold(*this, key));
}

void HeldRecords::Hold::Keep(store::RecordPtr record) {
  CHECK(record->key == key_);
  record_ = std::move(record);
  base::MutexLock lock(owner_.mutex_);
  Entry& entry = owner_.entries_.at(key_);
  owner_.bytes_ += record_->footprint() - entry.bytes;
  entry.bytes = record_->footprint();
}

HeldRecords::Hold::~Hold() {
  base::MutexLock lock(owner_.mutex_);
  const auto it = owner_.entries_.find(key_);
  if (--it->second.holders > 0) return;
  owner_.bytes_ -= it->second.bytes;
  owner_.entries_.erase(it);
}

size_t HeldRecords::bytes() const {
  base::MutexLock lock(mutex_);
  return bytes_;
}

}  // namespace tessera::vision
