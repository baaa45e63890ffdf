#include "tests/fuzz/check_refusal.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"
#include "common/base/error.h"
#include "common/text/utf8.h"

namespace tessera::fuzz {
namespace {

constexpr size_t kMaxMessageBytes = 4096;

}  // namespace

void CheckMessage(const absl::Status& status) {
  CHECK(!status.message().empty());
  CHECK_LE(status.message().size(), kMaxMessageBytes);
  CHECK(text::ValidateUtf8(status.message()).ok());
}

void CheckRefusal(const absl::Status& status, std::initializer_list<absl::string_view> reasons) {
  CHECK_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string reason = base::ReasonOf(status);
  if (std::find(reasons.begin(), reasons.end(), reason) == reasons.end()) {
    base::CheckFailed(__FILE__, __LINE__, "an unknown reason: " + status.ToString());
  }
  CheckMessage(status);
}

}  // namespace tessera::fuzz
