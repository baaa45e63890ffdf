#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/flags/flags.h"

namespace tessera::flags {

// Flags that were given to `app`, with their values; credentials of URLs are left out.
std::vector<std::string> ChangedFlags(const CLI::App& app);

// The command line of a binary that has flags and no subcommands.
class Command {
 public:
  Command(const std::string& name, const std::string& description);
  ~Command();

  void Add(const std::vector<Flag>& rows) { AddFlags(*app_, rows); }
  void AddRequired(const Flag& row);

  // Sets what the flags refer to. nullopt: go on; else the exit code: 0 after --help or --version,
  // 2 after what is wrong, which stderr has been told. `environment`: as main's environ.
  std::optional<int> Parse(int argc, char** argv, const char* const* environment);

  std::vector<std::string> Changed() const { return ChangedFlags(*app_); }

 private:
  std::unique_ptr<CLI::App> app_;
};

// 0, or 1 for what has failed, or 2 for a flag that cannot be; stderr is told.
int ExitCode(const std::string& name, const absl::Status& status);

}  // namespace tessera::flags
