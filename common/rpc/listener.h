#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::rpc {

// A descriptor of its own, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.Take()) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor();

  int fd() const { return fd_; }
  // The caller closes it.
  int Take();

 private:
  int fd_;
};

// Accepts the connections of one address and hands them on. gRPC 1.51 accepts itself, but stops for
// good when there is no file for a connection; this goes on as soon as there is one, and closes at
// once what would take the last files from others (base::FilesForConnections).
class Listener {
 public:
  // Listens on every address of "host:port" that this machine has; port 0 takes a free one.
  // INVALID_ARGUMENT (ADDRESS_UNAVAILABLE) where it has none, or the port is taken.
  static absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address);
  // Stop.
  ~Listener();

  int port() const { return port_; }
  // `take` owns a descriptor that does not block; called by one thread, until Stop. Once.
  void Start(std::function<void(int fd)> take);
  // Closes the address; returns when nothing is handed on any more. Idempotent.
  void Stop();

 private:
  explicit Listener(Descriptor wake) : wake_(std::move(wake)) {}
  void Run();
  bool Accept(int listening);
  // Whether to go on.
  bool Pause();

  std::vector<Descriptor> listening_;
  Descriptor wake_;  // an eventfd: Stop writes it
  int port_ = 0;
  std::function<void(int fd)> take_;
  std::thread thread_;
};

}  // namespace tessera::rpc
