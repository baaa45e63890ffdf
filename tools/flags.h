#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

// Flags as CONVENTIONS has them: snake_case, each also an environment variable TESSERA_<FLAG>
// (the flag wins), sizes such as 64MiB, times such as 800ms.
namespace tessera::tools {

// "123", "64KiB", "1.5GiB", "20MB"; INVALID_ARGUMENT otherwise.
absl::StatusOr<size_t> ParseBytes(const std::string& text);
// "64 MiB", rounded down to what reads well.
std::string BytesText(size_t bytes);

// "TESSERA_MAX_SEQUENCES" for "max_sequences".
std::string EnvironmentName(const std::string& flag);

// --name, $TESSERA_NAME. `target` holds the default.
template <typename T>
CLI::Option* AddFlag(CLI::App& app, const std::string& name, T& target, const std::string& help) {
  return app.add_option("--" + name, target, help)
      ->envname(EnvironmentName(name))
      ->capture_default_str();
}
CLI::Option* AddBytesFlag(CLI::App& app, const std::string& name, size_t& target,
                          const std::string& help);
CLI::Option* AddDurationFlag(CLI::App& app, const std::string& name, absl::Duration& target,
                             const std::string& help);

}  // namespace tessera::tools
