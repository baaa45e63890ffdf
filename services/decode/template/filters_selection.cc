#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/access.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filter_tables.h"
#include "services/decode/template/filters.h"
#include "services/decode/template/operators.h"
#include "services/decode/template/strings.h"
#include "services/decode/template/tests.h"

namespace tessera::decode::jinja {
namespace {

// select, reject, selectattr, rejectattr: [attribute,] [test, [its arguments]].
absl::StatusOr<Value> Select(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  const bool by_attribute = absl::EndsWith(name, "attr");
  const bool wanted = absl::StartsWith(name, "select");
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) {
    return Failure(absl::StrCat("'", name, "' needs an attribute"));
  }
  Args test_args;
  absl::string_view test;
  if (args.positional.size() > skip) {
    if (!args.positional[skip].Is(Kind::kString)) return Failure("a test's name is a string");
    test = args.positional[skip].text().view();
    if (!IsTest(test)) return Failure(absl::StrCat("unknown test '", test, "'"));
    test_args.positional.assign(args.positional.begin() + skip + 1, args.positional.end());
    test_args.keywords = args.keywords;
  } else if (!args.keywords.empty()) {
    return Failure(absl::StrCat("'", name, "' takes no named argument"));
  }
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  Items chosen;
  for (const Value& item : items) {
    RETURN_IF_ERROR(context.budget.Steps());
    Value tested = item;
    if (by_attribute) {
      ASSIGN_OR_RETURN(tested, GetPath(context, item, args.positional[0]));
    }
    bool holds = tested.Truth();
    if (!test.empty()) {
      ASSIGN_OR_RETURN(holds, CallTest(context, test, tested, test_args));
    }
    if (holds == wanted) chosen.push_back(item);
  }
  return context.Sequence(Flavor::kGenerator, std::move(chosen));
}

// map(attribute='x', default=...) or map('filter', its arguments).
absl::StatusOr<Value> Map(const Context& context, absl::string_view name, const Value& subject,
                          const Args& args) {
  ASSIGN_OR_RETURN(Items items, context.Iterate(subject));
  if (args.positional.empty()) {
    ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"attribute", "default"}, 1));
    for (Value& item : items) {
      RETURN_IF_ERROR(context.budget.Steps());
      ASSIGN_OR_RETURN(item, GetPath(context, item, *bound[0]));
      if (item.Is(Kind::kUndefined) && bound[1] != nullptr) item = *bound[1];
    }
    return context.Sequence(Flavor::kGenerator, std::move(items));
  }
  if (!args.positional[0].Is(Kind::kString)) return Failure("a filter's name is a string");
  Args rest;
  rest.positional.assign(args.positional.begin() + 1, args.positional.end());
  rest.keywords = args.keywords;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(item, CallFilter(context, args.positional[0].text().view(), item, rest));
  }
  return context.Sequence(Flavor::kGenerator, std::move(items));
}

// What an item is sorted or compared by: its attribute, in lower case unless case counts.
absl::StatusOr<Value> KeyOf(const Context& context, const Value& item, const Value* attribute,
                            bool case_sensitive) {
  Value key = item;
  if (attribute != nullptr && !attribute->Is(Kind::kNone)) {
    if (attribute->Is(Kind::kString) && absl::StrContains(attribute->text().view(), ",")) {
      return Failure("sorting by several attributes is not supported");
    }
    ASSIGN_OR_RETURN(key, GetPath(context, item, *attribute));
  }
  if (case_sensitive || !key.Is(Kind::kString)) return key;
  return Lower(context, key.text());
}

using Keyed = std::vector<std::pair<Value, Value>>;  // key, item

absl::StatusOr<Keyed> WithKeys(const Context& context, const Items& items, const Value* attribute,
                               bool case_sensitive) {
  Keyed keyed;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, KeyOf(context, item, attribute, case_sensitive));
    keyed.emplace_back(std::move(key), item);
  }
  return keyed;
}

// Stable, as Python's sorted(): also with `reverse`, equal items keep their order.
absl::StatusOr<Items> Sorted(const Context& context, Keyed keyed, bool reverse) {
  // Each pair of neighbours is compared first, so that the order is known to exist.
  int64_t weight = 0;
  for (size_t i = 0; i < keyed.size(); ++i) {
    weight += keyed[i].first.weight();
    if (keyed[i].first.Is(Kind::kSequence)) return Failure("sorting lists is not supported");
    if (keyed[i].first.Is(Kind::kFloat) && !std::isfinite(keyed[i].first.real())) {
      return Failure("sorting numbers that are not finite is not supported");
    }
    if (i > 0) RETURN_IF_ERROR(Less(keyed[i - 1].first, keyed[i].first).status());
  }
  RETURN_IF_ERROR(context.budget.Steps(weight * 16));
  std::stable_sort(keyed.begin(), keyed.end(), [reverse](const auto& a, const auto& b) {
    return reverse ? *Less(b.first, a.first) : *Less(a.first, b.first);
  });
  Items items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return items;
}

absl::StatusOr<Value> Sort(const Context& context, absl::string_view name, const Value& subject,
                           const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  ASSIGN_OR_RETURN(Keyed keyed, WithKeys(context, items, bound[2], Flag(bound[1])));
  ASSIGN_OR_RETURN(Items sorted, Sorted(context, std::move(keyed), Flag(bound[0])));
  return context.Sequence(Flavor::kList, std::move(sorted));
}

absl::StatusOr<Value> DictSort(const Context& context, absl::string_view name, const Value& subject,
                               const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"case_sensitive", "by", "reverse"}));
  if (!subject.Is(Kind::kDict)) return Failure("'dictsort' of something that is no mapping");
  const bool by_key = bound[1] == nullptr || Equals(*bound[1], Value::String("key"));
  if (!by_key && !Equals(*bound[1], Value::String("value"))) {
    return Failure("'dictsort' sorts by 'key' or 'value'");
  }
  Keyed keyed;
  for (const auto& [key, value] : subject.entries()) {
    ASSIGN_OR_RETURN(Value by, KeyOf(context, by_key ? key : value, nullptr, Flag(bound[0])));
    keyed.emplace_back(std::move(by), Value::Sequence(Flavor::kTuple, {key, value}));
  }
  ASSIGN_OR_RETURN(Items sorted, Sorted(context, std::move(keyed), Flag(bound[2])));
  return context.Sequence(Flavor::kList, std::move(sorted));
}

absl::StatusOr<Value> Unique(const Context& context, absl::string_view name, const Value& subject,
                             const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  ASSIGN_OR_RETURN(const Keyed keyed, WithKeys(context, items, bound[1], Flag(bound[0])));
  Items seen;
  Items chosen;
  for (const auto& [key, item] : keyed) {
    if (!IsHashable(key)) return Failure("'unique' of lists or dicts");
    RETURN_IF_ERROR(context.budget.Steps(static_cast<int64_t>(seen.size()) + key.weight()));
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&k = key](const Value& other) { return Equals(k, other); });
    if (known) continue;
    seen.push_back(key);
    chosen.push_back(item);
  }
  return context.Sequence(Flavor::kGenerator, std::move(chosen));
}

absl::StatusOr<Value> Extreme(const Context& context, absl::string_view name, const Value& subject,
                              const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  ASSIGN_OR_RETURN(const Keyed keyed, WithKeys(context, items, bound[1], Flag(bound[0])));
  if (keyed.empty()) return Value::Undefined("an extreme of nothing");
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    RETURN_IF_ERROR(context.budget.Steps(keyed[i].first.weight()));
    ASSIGN_OR_RETURN(const bool better, name == "min" ? Less(keyed[i].first, keyed[best].first)
                                                      : Less(keyed[best].first, keyed[i].first));
    if (better) best = i;
  }
  return keyed[best].second;
}

absl::StatusOr<Value> Sum(const Context& context, absl::string_view name, const Value& subject,
                          const Args& args) {
  ASSIGN_OR_RETURN(const auto bound, args.Bind(name, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const Items items, context.Iterate(subject));
  Value sum = bound[1] != nullptr ? *bound[1] : Value::Int(0);
  if (sum.Is(Kind::kString)) return Failure("'sum' of strings: use | join");
  for (const Value& item : items) {
    Value part = item;
    if (bound[0] != nullptr && !bound[0]->Is(Kind::kNone)) {
      ASSIGN_OR_RETURN(part, GetPath(context, item, *bound[0]));
    }
    ASSIGN_OR_RETURN(sum, Arithmetic(context, Op::kAdd, sum, part));
  }
  return sum;
}

constexpr NamedFilter kSelectionFilters[] = {
    {"select", Select},     {"reject", Select}, {"selectattr", Select},
    {"rejectattr", Select}, {"map", Map},       {"sort", Sort},
    {"dictsort", DictSort}, {"unique", Unique}, {"min", Extreme},
    {"max", Extreme},       {"sum", Sum}};

}  // namespace

FilterBody FindSelectionFilter(absl::string_view name) { return FindIn(kSelectionFilters, name); }

}  // namespace tessera::decode::jinja
