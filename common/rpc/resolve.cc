#include "common/rpc/resolve.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
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

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveAddress(const std::string& address) {
  RETURN_IF_ERROR(CheckAddress(address));
  const std::string port = address.substr(address.rfind(':') + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(HostOf(address).c_str(), port.c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("the name of ", address, " is not known: ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, FreeList> list(found);
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
