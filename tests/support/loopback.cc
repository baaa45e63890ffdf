#include "tests/support/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <utility>

#include "common/base/check.h"

namespace tessera::testing {
namespace {

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

Fd Socket() {
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(fd.ok());
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

bool Bind(const Fd& fd, int port) {
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = Loopback(port);
  return bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

int Fd::Release() { return std::exchange(fd_, -1); }

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Fd Listen(int& port) {
  Fd fd = Socket();
  CHECK(Bind(fd, 0));
  CHECK_EQ(listen(fd.get(), 128), 0);
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  CHECK_EQ(getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  return fd;
}

Fd ConnectTo(int port) {
  Fd fd = Socket();
  const sockaddr_in address = Loopback(port);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fd.Reset();
  }
  return fd;
}

int FreeServerPort() {
  std::random_device random;
  // Those from 20000 on are of tests/integration/fleet.py.
  std::uniform_int_distribution<int> ports(10'000, 19'999);
  for (int round = 0; round < 1000; ++round) {
    const int port = ports(random);
    const Fd fd = Socket();
    if (Bind(fd, port) && listen(fd.get(), 1) == 0) return port;
  }
  CHECK(false);
}

bool SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace tessera::testing
