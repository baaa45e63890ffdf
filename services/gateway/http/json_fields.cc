#include "services/gateway/http/json_fields.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::gateway::http {

absl::string_view KindOf(const base::Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "a whole number";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "a list" : "an object";
}

absl::Status JsonFields::Wrong(absl::string_view place, absl::string_view what,
                               const base::Json& value) {
  return base::BadField(place, "BAD_PARAMETER",
                        absl::StrCat(place, " must be ", what, ", not ", KindOf(value)));
}

base::Json* JsonFields::Find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string JsonFields::PlaceOf(absl::string_view name) const { return absl::StrCat(place_, name); }

absl::StatusOr<std::optional<bool>> JsonFields::Bool(const char* name) const {
  const base::Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Wrong(PlaceOf(name), "true or false", *value);
  return value->get<bool>();
}

absl::StatusOr<std::optional<int64_t>> JsonFields::Int(const char* name) const {
  const base::Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_integer()) return Wrong(PlaceOf(name), "a whole number", *value);
  if (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{1} << 62) {
    return base::BadField(PlaceOf(name), "BAD_PARAMETER",
                          absl::StrCat(PlaceOf(name), " is too large"));
  }
  return value->get<int64_t>();
}

absl::StatusOr<std::optional<float>> JsonFields::Float(const char* name) const {
  const base::Json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  return FloatOf(*value, PlaceOf(name));
}

absl::StatusOr<float> JsonFields::FloatOf(const base::Json& value, absl::string_view place) {
  if (!value.is_number()) return Wrong(place, "a number", value);
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::clamp(value.get<double>(), -kMost, kMost));
}

absl::StatusOr<std::string*> JsonFields::String(const char* name) const {
  base::Json* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_string()) return Wrong(PlaceOf(name), "a string", *value);
  return &value->get_ref<std::string&>();
}

absl::StatusOr<base::Json*> JsonFields::Object(const char* name) const {
  base::Json* value = Find(name);
  if (value != nullptr && !value->is_object()) return Wrong(PlaceOf(name), "an object", *value);
  return value;
}

absl::StatusOr<base::Json*> JsonFields::Array(const char* name) const {
  base::Json* value = Find(name);
  if (value != nullptr && !value->is_array()) return Wrong(PlaceOf(name), "a list", *value);
  return value;
}

}  // namespace tessera::gateway::http
