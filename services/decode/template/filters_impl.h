#pragma once

#include "services/decode/template/filters.h"

// What the files of the filters share.
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

// `value` as an integer argument of `what`, or `fallback` where it is not given.
absl::StatusOr<int64_t> IntegerArgument(const Value* value, int64_t fallback,
                                        absl::string_view what);
inline bool Flag(const Value* value) { return value != nullptr && value->Truth(); }

}  // namespace tessera::decode::jinja
