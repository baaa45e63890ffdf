#include "common/rpc/listener.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "common/rpc/resolve.h"

namespace tessera::rpc {
namespace {

constexpr int kPauseMilliseconds = 100;  // when there is no file for a connection

in_port_t& PortOf(SocketAddress& address) {
  return address.storage.ss_family == AF_INET6
             ? reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port
             : reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port;
}

// Listens there; `address` has its port then. Below 0, with errno: it cannot.
Descriptor ListenOn(SocketAddress& address) {
  Descriptor socket(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.fd() < 0) return socket;
  const int on = 1;
  // Over connections that linger; a port that somebody listens on stays taken.
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  socklen_t size = sizeof(address.storage);
  if (bind(socket.fd(), generic, address.size) == 0 && listen(socket.fd(), SOMAXCONN) == 0 &&
      getsockname(socket.fd(), generic, &size) == 0) {
    return socket;
  }
  const int error = errno;
  close(socket.Take());
  errno = error;
  return Descriptor(-1);
}

absl::Status Unavailable(const std::string& address, absl::string_view why) {
  return base::Error(absl::StatusCode::kInvalidArgument, "ADDRESS_UNAVAILABLE",
                     absl::StrCat("cannot listen on ", address, ": ", why));
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::Take() { return std::exchange(fd_, -1); }

absl::StatusOr<std::unique_ptr<Listener>> Listener::Listen(const std::string& address) {
  absl::StatusOr<std::vector<SocketAddress>> addresses = SocketAddresses(address);
  if (absl::IsUnavailable(addresses.status())) {
    return Unavailable(address, addresses.status().message());
  }
  RETURN_IF_ERROR(addresses.status());
  auto listener =
      std::unique_ptr<Listener>(new Listener(Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))));
  if (listener->wake_.fd() < 0) return Unavailable(address, std::strerror(errno));
  int error = EADDRNOTAVAIL;
  for (SocketAddress& each : *addresses) {
    if (listener->port_ != 0) PortOf(each) = htons(static_cast<uint16_t>(listener->port_));
    Descriptor listening = ListenOn(each);
    if (listening.fd() < 0) {
      error = errno;
      if (error == EADDRINUSE) return Unavailable(address, std::strerror(error));
      continue;  // as a name of two families has one that this machine lacks
    }
    listener->port_ = ntohs(PortOf(each));
    listener->listening_.push_back(std::move(listening));
  }
  if (listener->listening_.empty()) return Unavailable(address, std::strerror(error));
  return listener;
}

Listener::~Listener() { Stop(); }

void Listener::Start(std::function<void(int fd)> take) {
  take_ = std::move(take);
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    // An eventfd takes a number as long as it holds none.
    (void)!write(wake_.fd(), &one, sizeof(one));
    thread_.join();
  }
  listening_.clear();
}

void Listener::Run() {
  std::vector<pollfd> waits;
  for (const Descriptor& listening : listening_) waits.push_back({listening.fd(), POLLIN, 0});
  waits.push_back({wake_.fd(), POLLIN, 0});
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0) continue;  // a signal
    if (waits.back().revents != 0) return;
    for (const pollfd& wait : waits) {
      if (wait.revents != 0 && !Accept(wait.fd) && !Pause()) return;
    }
  }
}

bool Listener::Accept(int listening) {
  Descriptor fd(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.fd() < 0) {
    return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
  }
  if (fd.fd() >= base::FilesForConnections(base::kGrpcFiles)) return true;
  const int on = 1;
  setsockopt(fd.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  take_(fd.Take());
  return true;
}

bool Listener::Pause() {
  pollfd wake = {wake_.fd(), POLLIN, 0};
  return poll(&wake, 1, kPauseMilliseconds) <= 0;
}

}  // namespace tessera::rpc
