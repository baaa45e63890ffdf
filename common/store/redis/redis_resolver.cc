#include "common/store/redis/redis_resolver.h"

#include <netdb.h>

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::store {
namespace {

absl::Status Unresolved(const std::string& host, absl::string_view why) {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_UNRESOLVED",
                     absl::StrCat("the host name ", host, ": ", why));
}

RedisResolver::Addresses Ask(const std::string& host, uint16_t port, int flags) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Unresolved(host, gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.size = at->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace

RedisResolver::RedisResolver(std::string host, uint16_t port, std::function<Addresses()> resolve)
    : host_(host), port_(port), system_(resolve == nullptr), call_([host, port, resolve] {
        return resolve == nullptr ? Ask(host, port, 0) : resolve();
      }) {}

RedisResolver::Addresses RedisResolver::Resolve(absl::Duration timeout) {
  if (system_) {
    if (Addresses numeric = Ask(host_, port_, AI_NUMERICHOST); numeric.ok()) return numeric;
  }
  if (const absl::Status begun = call_.Begin(); !begun.ok()) {
    return Unresolved(host_, begun.message());
  }
  std::optional<Addresses> answer = call_.Await(timeout);
  if (answer.has_value()) return *std::move(answer);
  return Unresolved(host_, call_.cancelled() ? "cancelled" : "no answer in time");
}

}  // namespace tessera::store
