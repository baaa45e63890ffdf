#include "services/decode/template/filters.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/decode/template/failure.h"
#include "services/decode/template/filter_tables.h"

namespace tessera::decode::jinja {
namespace {

FilterBody Find(absl::string_view name) {
  for (const auto find :
       {FindStringFilter, FindNumberFilter, FindSequenceFilter, FindSelectionFilter}) {
    if (const FilterBody body = find(name); body != nullptr) return body;
  }
  return nullptr;
}

}  // namespace

bool IsFilter(absl::string_view name) { return Find(name) != nullptr; }

absl::StatusOr<Value> CallFilter(const Context& context, absl::string_view name,
                                 const Value& subject, const Args& args) {
  const FilterBody body = Find(name);
  if (body == nullptr) return Failure(absl::StrCat("unknown filter '", name, "'"));
  RETURN_IF_ERROR(context.budget.Steps(subject.Is(Kind::kString) ? subject.weight() : 1));
  return body(context, name, subject, args);
}

}  // namespace tessera::decode::jinja
