#include "services/decode/model/config_reader.h"

#include <cmath>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

// A value as it appears in a message.
std::string Shown(const base::Json& value) {
  constexpr size_t kMaxBytes = 80;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kMaxBytes) text = text.substr(0, kMaxBytes) + "...";
  return text;
}

}  // namespace

absl::Status InvalidKey(absl::string_view key, absl::string_view problem) {
  return base::BadField(key, "MODEL_CONFIG_INVALID", absl::StrCat(key, " ", problem));
}

absl::Status UnsupportedKey(absl::string_view key, const base::Json& value,
                            absl::string_view supported) {
  return base::BadField(
      key, "MODEL_UNSUPPORTED",
      absl::StrCat(key, " is ", Shown(value), ", which is not supported; supported: ", supported));
}

const base::Json* ConfigReader::Find(absl::string_view key) {
  const std::string name(key);
  read_.insert(name);
  auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<std::optional<int64_t>> ConfigReader::OptionalInt(absl::string_view key, int64_t min,
                                                                 int64_t max) {
  const base::Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max) {
    return InvalidKey(Name(key), absl::StrCat("is ", Shown(*value), "; it must be an integer from ",
                                              min, " to ", max));
  }
  return value->get<int64_t>();
}

absl::StatusOr<int64_t> ConfigReader::Int(absl::string_view key, int64_t fallback, int64_t min,
                                          int64_t max) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> value, OptionalInt(key, min, max));
  return value.value_or(fallback);
}

absl::StatusOr<double> ConfigReader::Number(absl::string_view key, double fallback, double min,
                                            double max) {
  const base::Json* value = Find(key);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= min && number <= max)) {
    return InvalidKey(Name(key), absl::StrCat("is ", Shown(*value), "; it must be a number from ",
                                              min, " to ", max));
  }
  return number;
}

absl::StatusOr<bool> ConfigReader::Bool(absl::string_view key, bool fallback) {
  const base::Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return InvalidKey(Name(key), absl::StrCat("is ", Shown(*value), "; it must be true or false"));
  }
  return value->get<bool>();
}

absl::StatusOr<std::string> ConfigReader::String(absl::string_view key,
                                                 absl::string_view fallback) {
  const base::Json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    return InvalidKey(Name(key), absl::StrCat("is ", Shown(*value), "; it must be a text"));
  }
  return value->get<std::string>();
}

absl::StatusOr<std::vector<int32_t>> ConfigReader::Ids(absl::string_view key, int64_t max) {
  const base::Json* value = Find(key);
  if (value == nullptr) return std::vector<int32_t>();
  const base::Json list = value->is_array() ? *value : base::Json::array({*value});
  if (list.size() > kMaxIds) {
    return InvalidKey(Name(key), absl::StrCat("lists ", list.size(), " ids; at most ", kMaxIds,
                                              " are supported"));
  }
  std::vector<int32_t> ids;
  for (const base::Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > max) {
      return InvalidKey(Name(key),
                        absl::StrCat("is ", Shown(*value),
                                     "; it must be an id or a list of ids from 0 to ", max));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::string ConfigReader::Name(absl::string_view key) const { return absl::StrCat(path_, key); }

void ConfigReader::Ignore(absl::Span<const absl::string_view> keys) {
  for (absl::string_view key : keys) read_.emplace(key);
}

std::vector<std::string> ConfigReader::UnreadKeys() const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : object_.items()) {
    if (read_.find(key) == read_.end()) unread.push_back(Name(absl::CHexEscape(key).substr(0, 80)));
  }
  return unread;
}

}  // namespace tessera::decode
