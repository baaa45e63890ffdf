#include "tests/support/peer.h"

#include <sys/socket.h>

#include <utility>

namespace tessera::testing {

Peer::Peer(Serve serve) : serve_(std::move(serve)), listener_(Listen(port_)) {
  acceptor_ = std::thread([this] { Accept(); });
}

Peer::~Peer() {
  {
    base::MutexLock lock(mutex_);
    stop_ = true;
  }
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  HangUp();
  std::list<Connection> connections;
  {
    base::MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (Connection& connection : connections) connection.thread.join();
}

void Peer::HangUp() {
  base::MutexLock lock(mutex_);
  for (const Connection& connection : connections_) shutdown(connection.fd.get(), SHUT_RDWR);
}

int Peer::connections() const {
  base::MutexLock lock(mutex_);
  return accepted_;
}

void Peer::Run(Connection& connection) {
  serve_(connection.fd.get());
  shutdown(connection.fd.get(), SHUT_RDWR);
  connection.ended = true;
}

void Peer::Reap() {
  connections_.remove_if([](Connection& connection) {
    const bool ended = connection.ended;
    if (ended) connection.thread.join();
    return ended;
  });
}

void Peer::Accept() {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    base::MutexLock lock(mutex_);
    if (stop_ || !fd.ok()) return;
    Reap();
    ++accepted_;
    Connection& connection = connections_.emplace_back();
    connection.fd = std::move(fd);
    connection.thread = std::thread([this, &connection] { Run(connection); });
  }
}

}  // namespace tessera::testing
