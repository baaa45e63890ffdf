#pragma once

#include <map>
#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

// The environment beside the flags: CLI11 reads the variables of known flags, this looks after what
// it passes over in silence. Pure.
namespace tessera::flags {

// Variables that begin with TESSERA_, by name.
using Environment = std::map<std::string, std::string>;

// Those of `entries`, a null-terminated list of "NAME=value".
Environment OurVariables(const char* const* entries);

// A line for each variable that belongs to no flag of any command, naming the nearest where it
// looks like a typo. Not for those that our tests read, nor for the links that Kubernetes sets for
// a Service whose name begins so.
std::vector<std::string> UnknownVariables(CLI::App& app, const Environment& environment);

// Gives "" to the flags of the commands that were called whose variable is set but empty and that
// were not given. Throws CLI::ValidationError, which names the variable, where a flag takes no "".
void ApplyEmptyVariables(CLI::App& app, const Environment& environment);

// The names of those variables: what to say when the command line lacks a required flag.
std::vector<std::string> EmptyVariables(CLI::App& app, const Environment& environment);

}  // namespace tessera::flags
