#pragma once

#include <string>
#include <vector>

#include "common/flags/environment.h"

namespace CLI {
class App;
class Error;
}  // namespace CLI

// What is said of a command line that is wrong. Pure.
namespace tessera::flags {

// Lines for a person: what is wrong, the variables that the flags in question came from, and where
// to read on. `app` has parsed `args`, the command line without the program, and thrown `error`.
std::string UsageMessage(const CLI::App& app, const CLI::Error& error,
                         const std::vector<std::string>& args, const Environment& environment);

}  // namespace tessera::flags
