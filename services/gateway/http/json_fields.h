#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/json.h"

namespace tessera::gateway::http {

// "a string", "a number": for messages.
absl::string_view KindOf(const base::Json& value);

// The fields of one JSON object of a request, by type. An absent field and null are nullopt; a
// value of another type is INVALID_ARGUMENT that blames `place` + name. true is no number, 1 no
// bool, 1.0 no whole number.
class JsonFields {
 public:
  // `object` outlives it. REQUIRES: object.is_object(). `place`: "", or as in "messages[0].".
  JsonFields(base::Json& object, absl::string_view place) : object_(object), place_(place) {}

  // nullptr when absent or null.
  base::Json* Find(const char* name) const;
  bool Has(const char* name) const { return object_.contains(name); }
  std::string PlaceOf(absl::string_view name) const;

  absl::StatusOr<std::optional<bool>> Bool(const char* name) const;
  // Beyond 64 bits is refused.
  absl::StatusOr<std::optional<int64_t>> Int(const char* name) const;
  // Within the range of float; what is beyond it becomes its limit.
  absl::StatusOr<std::optional<float>> Float(const char* name) const;
  // The same of a value that is there; `place` is blamed.
  static absl::StatusOr<float> FloatOf(const base::Json& value, absl::string_view place);
  // Not null: the value, which may be moved from.
  absl::StatusOr<std::string*> String(const char* name) const;
  absl::StatusOr<base::Json*> Object(const char* name) const;
  absl::StatusOr<base::Json*> Array(const char* name) const;

  // INVALID_ARGUMENT, BAD_PARAMETER: "<place> must be <what>, not <kind>".
  static absl::Status Wrong(absl::string_view place, absl::string_view what,
                            const base::Json& value);

 private:
  base::Json& object_;
  const std::string place_;
};

}  // namespace tessera::gateway::http
