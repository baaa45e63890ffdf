#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "services/decode/template/args.h"
#include "services/decode/template/value.h"

// The filters by name, one table for each kind of subject.
namespace tessera::decode::jinja {

using FilterBody = absl::StatusOr<Value> (*)(const Context& context, absl::string_view name,
                                             const Value& subject, const Args& args);

struct NamedFilter {
  absl::string_view name;
  FilterBody body;
};

// Null when the name is not among them.
FilterBody FindStringFilter(absl::string_view name);
FilterBody FindNumberFilter(absl::string_view name);
FilterBody FindSequenceFilter(absl::string_view name);
FilterBody FindSelectionFilter(absl::string_view name);

template <size_t N>
FilterBody FindIn(const NamedFilter (&table)[N], absl::string_view name) {
  for (const NamedFilter& filter : table) {
    if (filter.name == name) return filter.body;
  }
  return nullptr;
}

}  // namespace tessera::decode::jinja
