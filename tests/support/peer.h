#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "tests/support/loopback.h"

namespace tessera::testing {

// A server of 127.0.0.1 with a thread for each connection. Any thread.
class Peer {
 public:
  // `serve` runs for each connection until it returns; then the connection is closed. Its reads
  // end when HangUp or the destructor shut the socket.
  using Serve = std::function<void(int fd)>;

  explicit Peer(Serve serve);
  // Hangs up and waits for all threads.
  ~Peer();

  int port() const { return port_; }
  // Ends all connections of now.
  void HangUp();
  // How many there have been.
  int connections() const;

 private:
  struct Connection {
    Fd fd;
    std::atomic<bool> ended = false;
    std::thread thread;
  };

  void Accept();
  void Run(Connection& connection);
  void Reap() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Serve serve_;
  int port_ = 0;
  Fd listener_;
  mutable base::Mutex mutex_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  int accepted_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Connection> connections_ ABSL_GUARDED_BY(mutex_);
  std::thread acceptor_;
};

}  // namespace tessera::testing
