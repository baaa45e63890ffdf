#include "common/flags/command.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/base/error.h"
#include "common/base/version.h"
#include "common/flags/environment.h"
#include "common/flags/usage.h"

namespace tessera::flags {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// "redis://user:secret@host" without who logs in and how.
std::string WithoutCredentials(std::string value) {
  const size_t scheme = value.find("://");
  const size_t at = value.rfind('@');
  if (scheme == std::string::npos || at == std::string::npos || at < scheme + 3) return value;
  return value.replace(scheme + 3, at - scheme - 3, "***");
}

}  // namespace

Command::Command(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {
  app_->set_version_flag("--version", name + " " + base::kVersion);
}

Command::~Command() = default;

void Command::AddRequired(const Flag& row) { AddFlag(*app_, row)->required(); }

std::optional<int> Command::Parse(int argc, char** argv, const char* const* environment) {
  const Environment ours = OurVariables(environment);
  for (const std::string& line : UnknownVariables(*app_, ours)) {
    std::cerr << app_->get_name() << ": warning: " << line << "\n";
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  app_->failure_message([&](const CLI::App*, const CLI::Error& error) {
    return UsageMessage(*app_, error, args, ours);
  });
  try {
    app_->parse(argc, argv);
    ApplyEmptyVariables(*app_, ours);
  } catch (const CLI::ParseError& error) {
    return app_->exit(error) == 0 ? 0 : kWrongUsage;
  }
  return std::nullopt;
}

std::vector<std::string> ChangedFlags(const CLI::App& app) {
  std::vector<std::string> changed;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_name() == "--help") continue;
    changed.push_back(option->get_name() + "=" +
                      WithoutCredentials(CLI::detail::join(option->results(), ",")));
  }
  return changed;
}

int ExitCode(const std::string& name, const absl::Status& status) {
  if (status.ok()) return 0;
  const std::string reason = base::ReasonOf(status);
  std::cerr << name << ": " << absl::StatusCodeToString(status.code())
            << (reason.empty() ? "" : " (" + reason + ")") << ": " << status.message() << "\n";
  return reason == "BAD_OPTION" ? kWrongUsage : kFailed;
}

}  // namespace tessera::flags
