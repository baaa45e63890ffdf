#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/bytes.h"
#include "common/base/error.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

// Flags as CONVENTIONS has them: snake_case, each also an environment variable TESSERA_<FLAG>
// (the flag wins), sizes such as 64MiB, times such as 800ms. A flag is one row of a table: its
// name, the field of an Options struct that it sets, its help. CLI11 itself, which takes long to
// compile, is for those to include who call it.
namespace tessera::flags {

// How a flag's text becomes a value. Refers to the field, which holds the default and outlives it.
struct FlagValue {
  std::string type;                                     // shown by --help: "BYTES"
  std::string text;                                     // of the default
  bool empty_ok = false;                                // whether "" is a value
  std::function<absl::Status(const std::string&)> set;  // INVALID_ARGUMENT says what it takes
};

struct Flag {
  std::string name;
  FlagValue value;
  std::string help;
};

FlagValue Value(std::string& target);              // any text but ""
FlagValue ValueOrEmpty(std::string& target);       // "" too
FlagValue List(std::vector<std::string>& target);  // "a,b"; empty: none
FlagValue Value(bool& target);                     // true, false
FlagValue Value(int32_t& target);
FlagValue Value(int64_t& target);
FlagValue Value(uint32_t& target);
FlagValue Value(uint64_t& target);
FlagValue Value(float& target);
FlagValue Value(double& target);
FlagValue Value(absl::Duration& target);  // not negative
FlagValue Bytes(size_t& target);          // as base::ParseBytes; its greatest value is no limit
FlagValue Budget(base::MemoryBudget& target);  // as base::ParseMemoryBudget
FlagValue OnOff(bool& target);                 // on, off

// One of the named values; the first that equals `target` is shown as the default.
template <typename T>
FlagValue OneOf(T& target, std::vector<std::pair<std::string, T>> values) {
  FlagValue flag = {.type = "TEXT", .text = {}, .set = {}};
  std::string names;
  for (const auto& [name, value] : values) {
    if (flag.text.empty() && value == target) flag.text = name;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name);
  }
  flag.set = [&target, values = std::move(values), names](const std::string& text) {
    for (const auto& [name, value] : values) {
      if (name != text) continue;
      target = value;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\"; supported: ", names));
  };
  return flag;
}

// A number in [least, most]: NaN is in no range.
template <typename T>
FlagValue Within(T& target, T least, T most) {
  FlagValue flag = Value(target);
  flag.set = [&target, least, most, set = std::move(flag.set)](const std::string& text) {
    const T before = target;
    const absl::Status parsed = set(text);
    if (parsed.ok() && target >= least && target <= most) return absl::OkStatus();
    target = before;
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\"; supported: numbers from ", least, " to ", most));
  };
  return flag;
}

// "TESSERA_MAX_SEQUENCES" for "max_sequences".
std::string EnvironmentName(const std::string& flag);

CLI::Option* AddFlag(CLI::App& app, const Flag& flag);
void AddFlags(CLI::App& app, const std::vector<Flag>& flags);

}  // namespace tessera::flags
