#pragma once

#include <sys/socket.h>

#include <cstring>

namespace tessera::store {

// An address that the system's resolver gave.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }
};

}  // namespace tessera::store
