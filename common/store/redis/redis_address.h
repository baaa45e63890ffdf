#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::store {

// Where a Redis is and who we are there. Holds a password: never printed as a whole.
struct RedisAddress {
  bool tls = false;
  std::string host;  // name, IPv4 or IPv6 address (without brackets)
  uint16_t port = 6379;
  std::string user;      // of an access control list; empty: the default user
  std::string password;  // empty: no AUTH
  int32_t database = 0;

  // "host:port/database", for messages.
  std::string Text() const;
};

// redis://[user:password@]host[:port][/database], or rediss:// for TLS; ":password@" for the
// default user. User and password are percent-decoded. INVALID_ARGUMENT, reason BAD_OPTION, field
// embedding_store; no message quotes the URL, for any part of it may be the password's.
absl::StatusOr<RedisAddress> ParseRedisUrl(absl::string_view url);

// Whether `text` names a Redis rather than another kind of store: only its scheme is looked at.
bool IsRedisUrl(absl::string_view text);

}  // namespace tessera::store
