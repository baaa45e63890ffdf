#include "services/decode/template/args.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/decode/template/failure.h"

namespace tessera::decode::jinja {

absl::StatusOr<std::vector<const Value*>> Args::Bind(absl::string_view what,
                                                     const std::vector<absl::string_view>& names,
                                                     size_t required) const {
  if (positional.size() > names.size()) {
    return Failure(absl::StrCat("'", what, "' takes at most ", names.size(),
                                " arguments here, found ", positional.size()));
  }
  std::vector<const Value*> bound(names.size(), nullptr);
  for (size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : keywords) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) {
      return Failure(absl::StrCat("'", what, "' has no argument '", name, "' here"));
    }
    const Value*& slot = bound[static_cast<size_t>(place - names.begin())];
    if (slot != nullptr) return Failure(absl::StrCat("argument '", name, "' is given twice"));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return Failure(absl::StrCat("'", what, "' needs an argument '", names[i], "'"));
    }
  }
  return bound;
}

absl::StatusOr<int64_t> IntegerArgument(const Value* value, int64_t fallback,
                                        absl::string_view what) {
  if (value == nullptr) return fallback;
  if (value->IsIntegral()) return value->integer();
  return Failure(absl::StrCat("'", what, "' takes an integer, not ", value->TypeName()));
}

}  // namespace tessera::decode::jinja
