#include "common/store/record_verdict.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::store {

bool ShouldDelete(RecordVerdict verdict) {
  return verdict == RecordVerdict::kBadMagic || verdict == RecordVerdict::kBadLength ||
         verdict == RecordVerdict::kBadChecksum || verdict == RecordVerdict::kNonfinite;
}

absl::string_view Name(RecordVerdict verdict) {
  switch (verdict) {
    case RecordVerdict::kGood:
      return "RECORD_GOOD";
    case RecordVerdict::kBadMagic:
      return "RECORD_BAD_MAGIC";
    case RecordVerdict::kBadLength:
      return "RECORD_BAD_LENGTH";
    case RecordVerdict::kBadChecksum:
      return "RECORD_BAD_CHECKSUM";
    case RecordVerdict::kNonfinite:
      return "RECORD_NONFINITE";
    case RecordVerdict::kOtherTrailer:
      return "RECORD_OTHER_TRAILER";
    case RecordVerdict::kBadMac:
      return "RECORD_BAD_MAC";
    case RecordVerdict::kOtherKey:
      return "RECORD_OTHER_KEY";
    case RecordVerdict::kOtherShape:
      return "RECORD_OTHER_SHAPE";
  }
  return "RECORD_UNKNOWN";
}

RecordVerdict VerdictOf(const absl::Status& status) {
  const std::string reason = base::ReasonOf(status);
  for (int i = 0; i <= static_cast<int>(RecordVerdict::kOtherShape); ++i) {
    const auto verdict = static_cast<RecordVerdict>(i);
    if (Name(verdict) == reason) return verdict;
  }
  return RecordVerdict::kGood;
}

absl::Status Refuse(RecordVerdict verdict, absl::string_view why) {
  return base::Error(absl::StatusCode::kInvalidArgument, Name(verdict),
                     absl::StrCat("embedding record: ", why));
}

}  // namespace tessera::store
