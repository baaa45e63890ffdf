#include "tools/flags.h"

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::tools {
namespace {

struct Unit {
  const char* suffix;
  double bytes;
};
constexpr std::array<Unit, 9> kUnits = {{{"KiB", 1024.0},
                                         {"MiB", 1048576.0},
                                         {"GiB", 1073741824.0},
                                         {"TiB", 1099511627776.0},
                                         {"KB", 1e3},
                                         {"MB", 1e6},
                                         {"GB", 1e9},
                                         {"TB", 1e12},
                                         {"B", 1.0}}};

}  // namespace

absl::StatusOr<size_t> ParseBytes(const std::string& text) {
  std::string number = text;
  double scale = 1;
  for (const Unit& unit : kUnits) {
    const std::string suffix = unit.suffix;
    if (text.size() > suffix.size() &&
        text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0) {
      number = text.substr(0, text.size() - suffix.size());
      scale = unit.bytes;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(number, &value) || !(value >= 0) || value * scale > 1e18) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is no size: write bytes, or a number with KiB, MiB or GiB"));
  }
  return static_cast<size_t>(value * scale);
}

std::string BytesText(size_t bytes) {
  if (bytes >= (size_t{1} << 30)) return absl::StrFormat("%.2f GiB", bytes / 1073741824.0);
  if (bytes >= (size_t{1} << 20)) return absl::StrFormat("%.1f MiB", bytes / 1048576.0);
  if (bytes >= (size_t{1} << 10)) return absl::StrFormat("%.1f KiB", bytes / 1024.0);
  return absl::StrCat(bytes, " B");
}

std::string EnvironmentName(const std::string& flag) {
  return absl::StrCat("TESSERA_", absl::AsciiStrToUpper(flag));
}

CLI::Option* AddBytesFlag(CLI::App& app, const std::string& name, size_t& target,
                          const std::string& help) {
  return app
      .add_option_function<std::string>(
          "--" + name,
          [&target, name](const std::string& text) {
            const absl::StatusOr<size_t> bytes = ParseBytes(text);
            if (!bytes.ok())
              throw CLI::ValidationError("--" + name, std::string(bytes.status().message()));
            target = *bytes;
          },
          help)
      ->envname(EnvironmentName(name))
      ->default_str(BytesText(target))
      ->type_name("BYTES");
}

CLI::Option* AddDurationFlag(CLI::App& app, const std::string& name, absl::Duration& target,
                             const std::string& help) {
  return app
      .add_option_function<std::string>(
          "--" + name,
          [&target, name](const std::string& text) {
            absl::Duration value;
            if (!absl::ParseDuration(text, &value) || value < absl::ZeroDuration()) {
              throw CLI::ValidationError("--" + name,
                                         "\"" + text + "\" is no time: write 800ms, 30s or 2m");
            }
            target = value;
          },
          help)
      ->envname(EnvironmentName(name))
      ->default_str(absl::FormatDuration(target))
      ->type_name("TIME");
}

}  // namespace tessera::tools
