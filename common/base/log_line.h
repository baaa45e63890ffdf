#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tessera::base {

enum class LogLevel { kInfo, kWarning, kError };

// A small fact beside a message: a name, lower_snake, and a text, a number or a truth. Refers to
// the texts that it was made from.
class LogFact {
 public:
  using Value = std::variant<absl::string_view, int64_t, double, bool>;

  LogFact(absl::string_view key, absl::string_view text) : key_(key), value_(text) {}
  LogFact(absl::string_view key, const char* text) : key_(key), value_(absl::string_view(text)) {}
  LogFact(absl::string_view key, const std::string& text)
      : key_(key), value_(absl::string_view(text)) {}
  LogFact(absl::string_view key, double number) : key_(key), value_(number) {}
  template <typename T, typename = std::enable_if_t<std::is_integral_v<T>>>
  LogFact(absl::string_view key, T value) : key_(key), value_(Whole(value)) {}

  absl::string_view key() const { return key_; }
  const Value& value() const { return value_; }

 private:
  static Value Whole(bool truth) { return truth; }
  template <typename T>
  static Value Whole(T number) {
    return static_cast<int64_t>(number);
  }

  absl::string_view key_;
  Value value_;
};

// A line of the log with its end, at most 4096 bytes: a JSON object,
// {"time":...,"level":...,"message":...} and the facts. Texts are made valid UTF-8, control
// characters are escaped, and what is long is cut: a message at 1000 bytes as they are written, the
// text of a fact at 256. Facts that find no room are left out, the last ones first. Pure.
std::string LogLine(absl::Time now, LogLevel level, absl::string_view message,
                    absl::Span<const LogFact> facts = {});

}  // namespace tessera::base
