#include "common/rpc/resolve.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"

namespace tessera::rpc {
namespace {

struct FreeList {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// "[::1]" is "::1" to the resolver.
std::string HostOf(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    return host.substr(1, host.size() - 2);
  }
  return host;
}

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

absl::StatusOr<std::unique_ptr<addrinfo, FreeList>> LookUp(const std::string& address) {
  RETURN_IF_ERROR(CheckAddress(address));
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(HostOf(address).c_str(), PortOf(address).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the name of ", address, " is not known: ", gai_strerror(error)));
  }
  return std::unique_ptr<addrinfo, FreeList>(found);
}

// 0, or the errno of who could not listen there; connections that linger are no matter.
int TryToListen(const addrinfo& entry) {
  const int fd = socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  const bool listens = bind(fd, entry.ai_addr, entry.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = listens ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status CheckFree(absl::string_view flag, const std::string& address) {
  if (address.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto list, LookUp(address));
  if (PortOf(address) == "0") return absl::OkStatus();
  int error = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    error = TryToListen(*entry);
    if (error == 0) return absl::OkStatus();
  }
  return base::Error(
      absl::StatusCode::kInvalidArgument, "ADDRESS_UNAVAILABLE",
      absl::StrCat("cannot listen on ", address, " (--", flag, "): ", std::strerror(error)));
}

absl::StatusOr<std::vector<SocketAddress>> SocketAddresses(const std::string& address) {
  ASSIGN_OR_RETURN(const auto list, LookUp(address));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    SocketAddress& each = addresses.emplace_back();
    std::memcpy(&each.storage, entry->ai_addr, entry->ai_addrlen);
    each.size = entry->ai_addrlen;
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address) {
  ASSIGN_OR_RETURN(const auto list, LookUp(address));
  const std::string port = PortOf(address);
  std::vector<std::string> names;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) != 0) {
      continue;
    }
    names.push_back(entry->ai_family == AF_INET6 ? absl::StrCat("[", host, "]:", port)
                                                 : absl::StrCat(host, ":", port));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace tessera::rpc
