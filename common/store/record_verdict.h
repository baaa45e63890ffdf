#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tessera::store {

// Why stored bytes are no record for this reader. All are a miss; ShouldDelete says what becomes of
// the bytes.
enum class RecordVerdict {
  kGood,
  kBadMagic,      // does not begin with TSR1
  kBadLength,     // lengths or header do not fit the bytes
  kBadChecksum,   // XXH3 differs
  kNonfinite,     // holds NaN or infinity, or int8 rows with such scales or the code -128
  kOtherTrailer,  // sealed in another way than this reader is configured for
  kBadMac,        // GMAC differs: another key file, or tampering
  kOtherKey,      // a record of another picture
  kOtherShape,    // other rows, width or dtype than expected
};

// Whether the bytes are broken for every reader. A reader that is only configured differently
// leaves them alone: the next Put overwrites them.
bool ShouldDelete(RecordVerdict verdict);

// UPPER_SNAKE, also the reason of a Decode error.
absl::string_view Name(RecordVerdict verdict);

// The verdict behind a status of Decode; kGood for OK.
RecordVerdict VerdictOf(const absl::Status& status);

// The error of Decode: INVALID_ARGUMENT, the verdict's name as reason. REQUIRES: not kGood.
absl::Status Refuse(RecordVerdict verdict, absl::string_view why);

}  // namespace tessera::store
