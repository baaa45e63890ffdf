#include "common/rpc/socket_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc/listener.h"

namespace tessera::rpc {
namespace {

absl::Status Failed(const char* what) {
  return absl::InternalError(
      absl::StrCat("the loopback between services: ", what, ": ", std::strerror(errno)));
}

sockaddr* Generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

void Prepare(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

absl::StatusOr<std::pair<int, int>> ConnectedSockets() {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0 || client.fd() < 0) return Failed("socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener.fd(), Generic(address), size) != 0 || listen(listener.fd(), 8) != 0 ||
      getsockname(listener.fd(), Generic(address), &size) != 0) {
    return Failed("listening");
  }
  if (connect(client.fd(), Generic(address), size) != 0) return Failed("connecting");
  sockaddr_in ours = {};
  size = sizeof(ours);
  if (getsockname(client.fd(), Generic(ours), &size) != 0) return Failed("its name");
  while (true) {  // somebody else may have connected first
    sockaddr_in peer = {};
    size = sizeof(peer);
    Descriptor server(accept4(listener.fd(), Generic(peer), &size, SOCK_CLOEXEC));
    if (server.fd() < 0) return Failed("accepting");
    if (peer.sin_port != ours.sin_port || peer.sin_addr.s_addr != ours.sin_addr.s_addr) continue;
    Prepare(server.fd());
    Prepare(client.fd());
    return std::make_pair(server.Take(), client.Take());
  }
}

}  // namespace tessera::rpc
