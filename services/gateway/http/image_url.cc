#include "services/gateway/http/image_url.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::gateway::http {
namespace {

constexpr size_t kMaxUrlBytes = 4096;

absl::Status BadUrl(absl::string_view message) {
  return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_URL", message);
}

bool IsHostChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
}

bool IsV6Char(char c) {
  return absl::ascii_isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.';
}

// "host", "host:port", "[v6]" or "[v6]:port".
absl::Status ParseAuthority(absl::string_view authority, ImageUrl& out) {
  absl::string_view host = authority, port;
  if (absl::StartsWith(authority, "[")) {
    const size_t end = authority.find(']');
    if (end == authority.npos) return BadUrl("the URL's host lacks its closing bracket");
    host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
    if (!port.empty() && !absl::ConsumePrefix(&port, ":")) return BadUrl("the URL's port is none");
    if (!std::all_of(host.begin(), host.end(), IsV6Char)) return BadUrl("the URL's host is none");
  } else {
    const size_t colon = authority.find(':');
    if (colon != authority.npos) {
      host = authority.substr(0, colon);
      port = authority.substr(colon + 1);
    }
    if (!std::all_of(host.begin(), host.end(), IsHostChar)) return BadUrl("the URL's host is none");
  }
  if (host.empty() || host.size() > 253) return BadUrl("the URL has no host");
  out.host = absl::AsciiStrToLower(host);
  out.authority = absl::AsciiStrToLower(authority);
  int number = out.tls ? 443 : 80;
  const bool digits = std::all_of(port.begin(), port.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (!digits || (!port.empty() && !absl::SimpleAtoi(port, &number)) || number < 1 ||
      number > 65535) {
    return BadUrl("the URL's port is none");
  }
  out.port = static_cast<uint16_t>(number);
  return absl::OkStatus();
}

struct Network {
  uint32_t address;
  int bits;
};

}  // namespace

absl::StatusOr<ImageUrl> ParseImageUrl(absl::string_view url) {
  if (url.size() > kMaxUrlBytes) return BadUrl("the URL is longer than 4096 bytes");
  for (const char c : url) {
    if (!absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == '\\') {
      return BadUrl("the URL holds a character that no URL has");
    }
  }
  ImageUrl out;
  out.tls = absl::StartsWithIgnoreCase(url, "https://");
  if (!out.tls && !absl::StartsWithIgnoreCase(url, "http://")) {
    return BadUrl("the URL is neither http:// nor https://");
  }
  url.remove_prefix(out.tls ? 8 : 7);
  url = url.substr(0, url.find('#'));
  const size_t path = std::min(url.find_first_of("/?"), url.size());
  const absl::string_view authority = url.substr(0, path);
  if (absl::StrContains(authority, "@")) return BadUrl("the URL holds credentials");
  RETURN_IF_ERROR(ParseAuthority(authority, out));
  const absl::string_view rest = url.substr(path);
  out.target = absl::StrCat(absl::StartsWith(rest, "/") ? "" : "/", rest);
  return out;
}

bool IsAllowed(const ImageUrl& url, const std::vector<std::string>& hosts) {
  const bool own_port = url.port == (url.tls ? 443 : 80);
  const bool v6 = absl::StrContains(url.host, ":");
  const std::string name = v6 ? absl::StrCat("[", url.host, "]") : url.host;
  const std::string with_port = absl::StrCat(name, ":", url.port);
  return std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return (own_port && host == name) || host == with_port;
  });
}

// The registry of special-purpose addresses of IANA (RFC 6890 and what updates it), multicast and
// what is reserved.
bool IsPublicV4(uint32_t address) {
  static constexpr Network kOthers[] = {
      {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},  {0xA9FE0000, 16},
      {0xAC100000, 12}, {0xC0000000, 24}, {0xC0000200, 24}, {0xC0586300, 24}, {0xC0A80000, 16},
      {0xC6120000, 15}, {0xC6336400, 24}, {0xCB007100, 24}, {0xE0000000, 4},  {0xF0000000, 4}};
  return std::none_of(std::begin(kOthers), std::end(kOthers), [address](const Network& network) {
    return (address ^ network.address) >> (32 - network.bits) == 0;
  });
}

bool IsPublicV6(const std::array<unsigned char, 16>& address) {
  const uint32_t head = uint32_t{address[0]} << 24 | uint32_t{address[1]} << 16 |
                        uint32_t{address[2]} << 8 | address[3];
  if (head >> 29 != 1) return false;                // 2000::/3 is what is given out
  if (head >> 9 == 0x20010000u >> 9) return false;  // 2001::/23: Teredo and others
  if (head == 0x20010db8) return false;             // documentation
  if (head >> 16 == 0x2002) return false;           // 6to4: an IPv4 address inside
  return head >> 12 != 0x3fff0;                     // documentation
}

}  // namespace tessera::gateway::http
