#include "common/base/bytes.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace tessera::base {
namespace {

constexpr double kMaxBytes = 1e18;

struct Unit {
  absl::string_view suffix;
  double bytes;
};
// The longer of two with one end comes first.
constexpr Unit kUnits[] = {
    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
    {"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
    {"B", 1.0}};

}  // namespace

absl::StatusOr<size_t> ParseBytes(absl::string_view text) {
  absl::string_view number = text;
  double scale = 1;
  for (const Unit& unit : kUnits) {
    if (absl::ConsumeSuffix(&number, unit.suffix)) {
      scale = unit.bytes;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value >= 0) || value * scale > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no size: write bytes, or a number with KiB, MiB or GiB"));
  }
  return static_cast<size_t>(value * scale);
}

std::string BytesText(size_t bytes) {
  const double value = static_cast<double>(bytes);
  if (bytes >= (size_t{1} << 30)) return absl::StrFormat("%.2f GiB", value / 1073741824.0);
  if (bytes >= (size_t{1} << 20)) return absl::StrFormat("%.1f MiB", value / 1048576.0);
  if (bytes >= (size_t{1} << 10)) return absl::StrFormat("%.1f KiB", value / 1024.0);
  return absl::StrCat(bytes, " B");
}

size_t MemoryBudget::BytesOf(size_t free_bytes) const {
  return share == 0 ? bytes : static_cast<size_t>(share * static_cast<double>(free_bytes));
}

std::string MemoryBudget::Text() const {
  return share == 0 ? BytesText(bytes) : absl::StrCat(share * 100, "%");
}

absl::StatusOr<MemoryBudget> ParseMemoryBudget(absl::string_view text) {
  MemoryBudget budget;
  absl::string_view number = text;
  if (absl::ConsumeSuffix(&number, "%")) {
    double percent = 0;
    if (!absl::SimpleAtod(number, &percent) || !(percent > 0 && percent <= 100)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", text, "\" is no share: write a number above 0 and at most 100, as 40%"));
    }
    budget.share = percent / 100;
    return budget;
  }
  const absl::StatusOr<size_t> bytes = ParseBytes(text);
  if (!bytes.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.status().message(), ", or a share as 40%"));
  }
  budget.bytes = *bytes;
  return budget;
}

}  // namespace tessera::base
