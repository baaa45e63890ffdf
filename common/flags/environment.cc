#include "common/flags/environment.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/flags/nearest.h"

namespace tessera::flags {
namespace {

constexpr absl::string_view kPrefix = "TESSERA_";
constexpr absl::string_view kOfTests[] = {"TESSERA_GOLDENS", "TESSERA_BINARY"};

// Kubernetes gives every container TESSERA_X_SERVICE_HOST, TESSERA_X_PORT_9000_TCP_ADDR, ... for a
// Service tessera-x.
bool IsServiceLink(const std::string& name, const std::string& value) {
  return absl::EndsWith(name, "_SERVICE_HOST") || absl::StrContains(name, "_SERVICE_PORT") ||
         (absl::StrContains(name, "_PORT") &&
          (absl::StrContains(value, "://") || absl::StrContains(name, "_TCP")));
}

// Variables of every command's flags, with the flags' names.
std::map<std::string, std::string> FlagsByVariable(CLI::App& app) {
  std::map<std::string, std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_envname().empty()) flags[option->get_envname()] = option->get_name();
  }
  for (CLI::App* command : app.get_subcommands({})) flags.merge(FlagsByVariable(*command));
  return flags;
}

// Options of the commands that were called whose variable is set but empty, unless given.
std::vector<CLI::Option*> EmptyOptions(CLI::App& app, const Environment& environment) {
  std::vector<CLI::Option*> options;
  for (CLI::Option* option : app.get_options()) {
    const auto found = environment.find(option->get_envname());
    if (found != environment.end() && found->second.empty() && option->count() == 0) {
      options.push_back(option);
    }
  }
  for (CLI::App* command : app.get_subcommands()) {
    for (CLI::Option* option : EmptyOptions(*command, environment)) options.push_back(option);
  }
  return options;
}

}  // namespace

Environment OurVariables(const char* const* entries) {
  Environment variables;
  for (; *entries != nullptr; ++entries) {
    const absl::string_view entry = *entries;
    const size_t equals = entry.find('=');
    if (!absl::StartsWith(entry, kPrefix) || equals == entry.npos) continue;
    variables[std::string(entry.substr(0, equals))] = std::string(entry.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> UnknownVariables(CLI::App& app, const Environment& environment) {
  const std::map<std::string, std::string> flags = FlagsByVariable(app);
  std::vector<std::string> names;  // without the prefix, which would make all of them alike
  for (const auto& [variable, flag] : flags) names.push_back(variable.substr(kPrefix.size()));
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) {
    const bool of_tests =
        std::find(std::begin(kOfTests), std::end(kOfTests), name) != std::end(kOfTests);
    if (of_tests || flags.count(name) > 0 || IsServiceLink(name, value)) continue;
    lines.push_back(absl::StrCat("the variable ", name, " belongs to no flag and is ignored"));
    const auto nearest = Nearest(name.substr(kPrefix.size()), names);
    if (!nearest.has_value()) continue;
    const std::string variable = absl::StrCat(kPrefix, *nearest);
    absl::StrAppend(&lines.back(), "; the nearest is ", variable, " (", flags.at(variable), ")");
  }
  return lines;
}

void ApplyEmptyVariables(CLI::App& app, const Environment& environment) {
  for (CLI::Option* option : EmptyOptions(app, environment)) {
    try {
      option->add_result("");
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      throw CLI::ValidationError(option->get_envname(),
                                 absl::StrCat("the variable is set, but empty: ", error.what()));
    }
  }
}

std::vector<std::string> EmptyVariables(CLI::App& app, const Environment& environment) {
  std::vector<std::string> names;
  for (const CLI::Option* option : EmptyOptions(app, environment)) {
    names.push_back(option->get_envname());
  }
  return names;
}

}  // namespace tessera::flags
