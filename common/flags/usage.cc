#include "common/flags/usage.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/flags/nearest.h"

namespace tessera::flags {
namespace {

std::string OrNearest(const std::string& name, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = Nearest(name, names);
  return nearest.has_value() ? absl::StrCat("; the nearest is ", *nearest) : "";
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string WrongCommand(const std::vector<std::string>& commands,
                         const std::vector<std::string>& extras) {
  return absl::StrCat(
      extras.empty() ? "a command is missing" : absl::StrCat("there is no command ", extras[0]),
      "; the commands are ", absl::StrJoin(commands, ", "));
}

std::string WrongArguments(const CLI::App& command, const std::vector<std::string>& extras) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : command.get_options()) flags.push_back(option->get_name());
  for (const std::string& extra : extras) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string flag = extra.substr(0, extra.find('='));
    return absl::StrCat("there is no flag ", flag, OrNearest(flag, flags));
  }
  return absl::StrCat("\"", absl::StrJoin(extras, " "),
                      "\" is one too many; a text of several words stands in quotes");
}

// Whether `flag` stands in `text`, and not as the beginning of another one.
bool Names(absl::string_view text, const std::string& flag) {
  for (size_t at = text.find(flag); at != text.npos; at = text.find(flag, at + 1)) {
    const size_t end = at + flag.size();
    if (end == text.size() || (text[end] != '_' && !absl::ascii_isalnum(text[end]))) return true;
  }
  return false;
}

bool IsGiven(const std::string& flag, const std::vector<std::string>& args) {
  return std::any_of(args.begin(), args.end(), [&flag](const std::string& arg) {
    return arg == flag || absl::StartsWith(arg, flag + "=");
  });
}

}  // namespace

std::string UsageMessage(const CLI::App& app, const CLI::Error& error,
                         const std::vector<std::string>& args, const Environment& environment) {
  const CLI::App* command = &app;
  std::string path = app.get_name();
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    absl::StrAppend(&path, " ", command->get_name());
  }
  const std::vector<std::string> extras = app.remaining(/*recurse=*/true);
  const std::vector<std::string> commands = CommandsOf(*command);
  const bool has_extras = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError);
  std::string what = error.what();
  if (!commands.empty() && (extras.empty() || extras[0][0] != '-')) {
    what = WrongCommand(commands, extras);
  } else if (has_extras || (!commands.empty() && !extras.empty())) {
    what = WrongArguments(*command, extras);
  }
  std::string message = absl::StrCat("tessera: ", what, "\n");
  for (const CLI::Option* option : command->get_options()) {
    const std::string flag = option->get_name();
    if (environment.count(option->get_envname()) == 0 || IsGiven(flag, args)) continue;
    if (environment.at(option->get_envname()).empty() || !Names(what, flag)) continue;
    absl::StrAppend(&message, "tessera: ", flag, " comes from the variable ", option->get_envname(),
                    "\n");
  }
  return absl::StrCat(message, "tessera: see ", path, " --help\n");
}

}  // namespace tessera::flags
