#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tools/client/dial.h"
#include "tools/serve.h"

namespace tessera::tools {

struct AskOptions {
  DialOptions dial;
  bool local = false;  // answer in this process with `serve.server.model_dir`
  std::vector<std::string> images;
  std::string question;  // "-" reads standard input
  bool json = false;
  bool receipt = false;
  std::string session;
  uint32_t max_tokens = 256;
  float temperature = 0;
  uint64_t seed = 0;
  bool has_seed = false;
  std::vector<std::string> stop;
  uint32_t top_logprobs = 0;      // likeliest tokens told beside each chosen one, with `json`
  bool has_top_logprobs = false;  // else nothing of the kind
  absl::Duration timeout = absl::Seconds(120);
  ServeOptions serve;
};

// Streams the answer to `out`, without white space before it; with `json` prints one object
// instead, with log-probabilities where asked for. Errors carry code and reason.
absl::Status Ask(AskOptions options, std::istream& in, std::ostream& out);

}  // namespace tessera::tools
