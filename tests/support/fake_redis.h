#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/peer.h"

namespace tessera::testing {

// A Redis that says what a test wants: `answer` gives the raw bytes for each command, or nullopt to
// hang up. PING is answered with PONG, and the GET with which a store logs in with nil, where
// `answer` is not asked (it gets every other command; that GET, too, where it `hears_log_ins`).
// `answer` runs on the connections' threads.
class FakeRedis {
 public:
  using Answer = std::function<std::optional<std::string>(const std::vector<std::string>& words)>;

  explicit FakeRedis(Answer answer, bool hears_log_ins = false);

  int port() const { return peer_.port(); }
  int connections() const { return peer_.connections(); }

 private:
  void Serve(int fd) const;

  const Answer answer_;
  const bool hears_log_ins_;
  Peer peer_;
};

}  // namespace tessera::testing
