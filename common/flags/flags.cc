#include "common/flags/flags.h"

#include <CLI/CLI.hpp>
#include <limits>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/bytes.h"

namespace tessera::flags {
namespace {

absl::Status NotA(absl::string_view what, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no ", what));
}

template <typename T>
FlagValue Number(T& target, absl::string_view type, absl::string_view what,
                 bool (*parse)(absl::string_view, T*)) {
  return {.type = std::string(type),
          .text = absl::StrCat(target),
          .set = [&target, what, parse](const std::string& text) {
            T value;
            if (!parse(text, &value)) return NotA(what, text);
            target = value;
            return absl::OkStatus();
          }};
}

template <typename T>
FlagValue Whole(T& target) {
  const absl::string_view what =
      std::is_signed_v<T> ? "whole number of this size" : "whole number from 0 of this size";
  return Number<T>(target, std::is_signed_v<T> ? "INT" : "UINT", what,
                   [](absl::string_view text, T* value) { return absl::SimpleAtoi(text, value); });
}

FlagValue Text(std::string& target, bool empty_ok) {
  return {.type = "TEXT",
          .text = target,
          .empty_ok = empty_ok,
          .set = [&target](const std::string& text) {
            target = text;
            return absl::OkStatus();
          }};
}

}  // namespace

FlagValue Value(std::string& target) { return Text(target, false); }
FlagValue ValueOrEmpty(std::string& target) { return Text(target, true); }

FlagValue List(std::vector<std::string>& target) {
  return {.type = "TEXT,...",
          .text = absl::StrJoin(target, ","),
          .empty_ok = true,
          .set = [&target](const std::string& text) {
            target.clear();
            if (!text.empty()) target = absl::StrSplit(text, ',');
            return absl::OkStatus();
          }};
}

FlagValue Value(int32_t& target) { return Whole(target); }
FlagValue Value(int64_t& target) { return Whole(target); }
FlagValue Value(uint32_t& target) { return Whole(target); }
FlagValue Value(uint64_t& target) { return Whole(target); }
FlagValue Value(float& target) { return Number(target, "FLOAT", "number", absl::SimpleAtof); }
FlagValue Value(double& target) { return Number(target, "FLOAT", "number", absl::SimpleAtod); }

FlagValue Value(bool& target) {
  return OneOf<bool>(target, {{"true", true}, {"false", false}, {"1", true}, {"0", false}});
}

FlagValue OnOff(bool& target) { return OneOf<bool>(target, {{"on", true}, {"off", false}}); }

FlagValue Value(absl::Duration& target) {
  return {.type = "TIME",
          .text = absl::FormatDuration(target),
          .set = [&target](const std::string& text) {
            absl::Duration value;
            if (!absl::ParseDuration(text, &value) || value < absl::ZeroDuration()) {
              return NotA("time: write 800ms, 30s or 2m", text);
            }
            target = value;
            return absl::OkStatus();
          }};
}

FlagValue Bytes(size_t& target) {
  return {.type = "BYTES",
          .text = target == std::numeric_limits<size_t>::max() ? "" : base::BytesText(target),
          .set = [&target](const std::string& text) {
            const absl::StatusOr<size_t> bytes = base::ParseBytes(text);
            if (bytes.ok()) target = *bytes;
            return bytes.status();
          }};
}

FlagValue Budget(base::MemoryBudget& target) {
  return {.type = "BYTES", .text = target.Text(), .set = [&target](const std::string& text) {
            const absl::StatusOr<base::MemoryBudget> budget = base::ParseMemoryBudget(text);
            if (budget.ok()) target = *budget;
            return budget.status();
          }};
}

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("TESSERA_", absl::AsciiStrToUpper(flag));
}

CLI::Option* AddFlag(CLI::App& app, const Flag& flag) {
  const std::string name = "--" + flag.name;
  const auto set = [name, value = flag.value](const std::string& text) {
    const absl::Status status = text.empty() && !value.empty_ok
                                    ? absl::InvalidArgumentError("it must not be empty")
                                    : value.set(text);
    if (!status.ok()) throw CLI::ValidationError(name, std::string(status.message()));
  };
  return app.add_option_function<std::string>(name, set, flag.help)
      ->envname(EnvironmentName(flag.name))
      ->default_str(flag.value.text)
      ->type_name(flag.value.type);
}

void AddFlags(CLI::App& app, const std::vector<Flag>& flags) {
  for (const Flag& flag : flags) AddFlag(app, flag);
}

}  // namespace tessera::flags
