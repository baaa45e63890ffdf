#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::gateway::http {

struct ImageUrl {
  bool tls = false;
  std::string host;  // in lower case, without brackets
  uint16_t port = 0;
  std::string authority;  // for the Host header
  std::string target;     // path and query
};

// INVALID_ARGUMENT, IMAGE_URL: not http or https, credentials, a character that no URL has, longer
// than 4096 bytes, port 0. Pure.
absl::StatusOr<ImageUrl> ParseImageUrl(absl::string_view url);

// Whether `hosts` has the URL's host, an IPv6 address in brackets: alone, at the scheme's own port,
// or with the port.
bool IsAllowed(const ImageUrl& url, const std::vector<std::string>& hosts);

// Whether an address is one of the public internet: not private, loopback,
// link-local, shared, multicast, reserved, documentation, and no IPv4 in disguise.
bool IsPublicV4(uint32_t address);  // its first byte is the highest
bool IsPublicV6(const std::array<unsigned char, 16>& address);

}  // namespace tessera::gateway::http
