#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/temp_dir.h"

namespace tessera::testing {

// A redis-server of its own on 127.0.0.1, with nothing kept on disk. Started in the constructor by
// the thread that must outlive it. One thread.
class RedisServer {
 public:
  // `arguments` as on redis-server's command line, such as {"--requirepass", "x"}. `tls`: the port
  // speaks TLS, with what `arguments` say of certificates.
  explicit RedisServer(std::vector<std::string> arguments = {}, bool tls = false);

  int port() const { return port_; }
  // "redis://" + user + "127.0.0.1:port"; `user` such as ":password@".
  std::string Url(const std::string& user = "") const;

  // Start comes back when connections are taken; the same port each time. Kill is SIGKILL; Pause
  // and Resume are SIGSTOP and SIGCONT.
  void Start();
  void Kill();
  void Pause();
  void Resume();

  // One command over a connection of its own: the text of the reply (nil is "(nil)", an error
  // begins with "-"), arrays as their raw bytes. `password`: for an AUTH before, `database` for a
  // SELECT.
  std::string Ask(const std::vector<std::string>& words, const std::string& password = "",
                  int database = 0) const;

 private:
  bool Answers() const;

  const TempDir dir_;
  const std::vector<std::string> arguments_;
  const bool tls_;
  int port_;
  std::optional<ChildProcess> process_;
};

}  // namespace tessera::testing
