#pragma once

#include <string>

#include "absl/strings/string_view.h"

// Sockets of 127.0.0.1 for tests that play a peer. CHECKs what only a broken machine refuses.
namespace tessera::testing {

// A file descriptor, closed when this dies.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Reset(); }
  Fd(Fd&& other) noexcept : fd_(other.Release()) {}
  Fd& operator=(Fd&& other) noexcept {
    Reset(other.Release());
    return *this;
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release();
  void Reset(int fd = -1);

 private:
  int fd_;
};

// Listens on a port that is free, stored in `port`.
Fd Listen(int& port);
// Not ok where nobody listens.
Fd ConnectTo(int port);
// A port below those that the system gives to clients, free just now: a server can be started on it
// again and again.
int FreeServerPort();

// Whether all could be sent.
bool SendAll(int fd, absl::string_view bytes);

}  // namespace tessera::testing
