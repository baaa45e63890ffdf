#include "common/flags/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/string_view.h"

namespace tessera::flags {
namespace {

// Insertions, deletions and replacements of one letter that turn `a` into `b` (Levenshtein).
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> Nearest(const std::string& name, const std::vector<std::string>& names) {
  const auto nearest = std::min_element(names.begin(), names.end(),
                                        [&name](const std::string& a, const std::string& b) {
                                          return Distance(name, a) < Distance(name, b);
                                        });
  if (nearest == names.end() || 3 * Distance(name, *nearest) > name.size()) return std::nullopt;
  return *nearest;
}

}  // namespace tessera::flags
