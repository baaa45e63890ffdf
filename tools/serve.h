#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/local_server.h"

namespace CLI {
class App;
}

namespace tessera::tools {

struct ServeOptions {
  LocalServerOptions server;
  absl::Duration drain_delay = absl::ZeroDuration();
  absl::Duration drain_timeout = absl::Seconds(90);
  std::string device = "cpu";
  std::string vision_device;        // empty: --device
  std::string program = "tessera";  // as it was called, for the command that the report shows
};

// The flags of the services, for `serve` and for `ask --model`.
void AddServiceFlags(CLI::App& app, ServeOptions& options);
// What one flag means for several services.
void ApplyServiceFlags(ServeOptions& options);

// Runs until SIGTERM or SIGINT, drains, returns. A second signal ends the process at once.
// `changed_flags`: for the start-up report.
absl::Status Serve(ServeOptions options, const std::vector<std::string>& changed_flags,
                   std::ostream& out);

}  // namespace tessera::tools
