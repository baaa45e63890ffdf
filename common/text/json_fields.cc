#include "common/text/json_fields.h"

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::text {

absl::Status BadTokenizer(absl::string_view path, absl::string_view what) {
  return base::Error(absl::StatusCode::kInvalidArgument, "BAD_TOKENIZER",
                     absl::StrCat(path, ": ", what));
}

absl::Status UnsupportedTokenizer(absl::string_view path, absl::string_view value,
                                  absl::string_view supported) {
  return base::Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_TOKENIZER",
                     absl::StrCat(path, ": ", value, " is not supported; supported: ", supported));
}

absl::StatusOr<int32_t> ReadId(const base::Json& value, absl::string_view path) {
  if (!value.is_number_integer()) {
    return BadTokenizer(path,
                        absl::StrCat("a token id must be an integer, not ", value.type_name()));
  }
  const bool huge = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{kMaxId};
  if (huge || value.get<int64_t>() < 0) {
    return BadTokenizer(path, absl::StrCat("token id ", value.dump(), " is outside 0..", kMaxId));
  }
  return static_cast<int32_t>(value.get<int64_t>());
}

absl::StatusOr<Fields> Fields::Of(const base::Json& object, absl::string_view path) {
  if (!object.is_object()) {
    return BadTokenizer(path, absl::StrCat("must be an object, not ", object.type_name()));
  }
  return Fields(&object, path);
}

const base::Json* Fields::Find(absl::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::string Fields::PathOf(absl::string_view key) const {
  return path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key);
}

absl::StatusOr<const base::Json*> Fields::Present(absl::string_view key) const {
  const base::Json* value = Find(key);
  if (value == nullptr) return BadTokenizer(PathOf(key), "is missing");
  return value;
}

absl::StatusOr<const base::Json*> Fields::Array(absl::string_view key) const {
  ASSIGN_OR_RETURN(const base::Json* value, Present(key));
  if (!value->is_array()) {
    return BadTokenizer(PathOf(key), absl::StrCat("must be a list, not ", value->type_name()));
  }
  return value;
}

absl::StatusOr<std::string> Fields::String(absl::string_view key) const {
  ASSIGN_OR_RETURN(const base::Json* value, Present(key));
  if (!value->is_string()) {
    return BadTokenizer(PathOf(key), absl::StrCat("must be a string, not ", value->type_name()));
  }
  return value->get<std::string>();
}

absl::StatusOr<std::string> Fields::String(absl::string_view key,
                                           absl::string_view fallback) const {
  if (Find(key) == nullptr) return std::string(fallback);
  return String(key);
}

absl::StatusOr<bool> Fields::Bool(absl::string_view key) const {
  ASSIGN_OR_RETURN(const base::Json* value, Present(key));
  if (!value->is_boolean()) {
    return BadTokenizer(PathOf(key),
                        absl::StrCat("must be true or false, not ", value->type_name()));
  }
  return value->get<bool>();
}

absl::StatusOr<bool> Fields::Bool(absl::string_view key, bool fallback) const {
  if (Find(key) == nullptr) return fallback;
  return Bool(key);
}

absl::StatusOr<int32_t> Fields::Id(absl::string_view key) const {
  ASSIGN_OR_RETURN(const base::Json* value, Present(key));
  return ReadId(*value, PathOf(key));
}

}  // namespace tessera::text
