#include "services/decode/template/failure.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/utf8.h"

namespace tessera::decode::jinja {
namespace {

constexpr char kLineUrl[] = "tessera/template_line";
// A template may put the whole of what was said into its message.
constexpr size_t kMostRaisedBytes = 500;

}  // namespace

absl::Status Failure(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_FAILED", message);
}

absl::Status FailureAt(int line, absl::string_view message) {
  return AtLine(Failure(message), line);
}

absl::Status Raised(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "TEMPLATE_RAISED",
                     base::Excerpt(message, kMostRaisedBytes));
}

absl::Status AtLine(const absl::Status& status, int line) {
  if (status.ok() || status.GetPayload(kLineUrl).has_value() ||
      base::ReasonOf(status) == "TEMPLATE_RAISED") {
    return status;
  }
  absl::Status located = base::Annotate(status, absl::StrCat("line ", line));
  located.SetPayload(kLineUrl, absl::Cord(absl::StrCat(line)));
  return located;
}

}  // namespace tessera::decode::jinja
