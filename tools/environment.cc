#include "tools/environment.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::tools {
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

// Insertions, deletions and replacements of one letter that turn `a` into `b` (Levenshtein).
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
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
  std::vector<std::string> lines;
  for (const auto& [name, value] : environment) {
    const bool of_tests =
        std::find(std::begin(kOfTests), std::end(kOfTests), name) != std::end(kOfTests);
    if (of_tests || flags.count(name) > 0 || IsServiceLink(name, value)) continue;
    const auto nearest =
        std::min_element(flags.begin(), flags.end(), [&name = name](const auto& a, const auto& b) {
          return Distance(name, a.first) < Distance(name, b.first);
        });
    lines.push_back(absl::StrCat("the variable ", name, " belongs to no flag and is ignored"));
    if (nearest == flags.end()) continue;
    absl::StrAppend(&lines.back(), "; the nearest is ", nearest->first, " (", nearest->second, ")");
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

}  // namespace tessera::tools
