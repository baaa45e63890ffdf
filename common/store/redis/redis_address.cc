#include "common/store/redis/redis_address.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::store {
namespace {

constexpr absl::string_view kPlain = "redis://";
constexpr absl::string_view kTls = "rediss://";
constexpr size_t kMaxHostBytes = 253;
constexpr int32_t kMaxDatabase = 1'000'000;

absl::Status Bad(absl::string_view what) {
  return base::BadField("embedding_store", "BAD_OPTION",
                        absl::StrCat("the Redis URL: ", what,
                                     "; it is redis://[user:password@]host[:port][/database], or "
                                     "rediss:// for TLS"));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

absl::StatusOr<std::string> PercentDecoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const int high = i + 2 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      return Bad("a % in user or password is not followed by two hex digits");
    out.push_back(static_cast<char>(16 * high + low));
    i += 2;
  }
  return out;
}

absl::Status ReadUser(absl::string_view text, RedisAddress& address) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) {
    return Bad("a password is missing before the @ (for the default user: \":password@\")");
  }
  ASSIGN_OR_RETURN(address.user, PercentDecoded(text.substr(0, colon)));
  ASSIGN_OR_RETURN(address.password, PercentDecoded(text.substr(colon + 1)));
  if (address.password.empty()) return Bad("the password is empty");
  return absl::OkStatus();
}

bool IsHostCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

absl::Status ReadPort(absl::string_view text, RedisAddress& address) {
  uint32_t port = 0;
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(text, &port) || port == 0 || port > 65535) {
    return Bad("the port is not a number from 1 to 65535");
  }
  address.port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

absl::Status ReadHost(absl::string_view text, RedisAddress& address) {
  absl::string_view host;
  absl::string_view rest;
  if (absl::StartsWith(text, "[")) {
    const size_t end = text.find(']');
    if (end == absl::string_view::npos) return Bad("an IPv6 address lacks its ]");
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    const auto is_ipv6 = [](unsigned char c) {
      return absl::ascii_isxdigit(c) || c == ':' || c == '.';
    };
    if (!std::all_of(host.begin(), host.end(), is_ipv6)) return Bad("the host is no IPv6 address");
  } else {
    host = text.substr(0, text.find(':'));
    rest = text.substr(host.size());
    if (!std::all_of(host.begin(), host.end(), IsHostCharacter)) {
      return Bad("the host has a character that no name has");
    }
  }
  if (host.empty() || host.size() > kMaxHostBytes) return Bad("the host is missing or too long");
  address.host = std::string(host);
  if (rest.empty()) return absl::OkStatus();
  if (rest[0] != ':') return Bad("between host and port there must be a colon");
  return ReadPort(rest.substr(1), address);
}

}  // namespace

std::string RedisAddress::Text() const {
  const bool ipv6 = absl::StrContains(host, ':');
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port, "/", database);
}

bool IsRedisUrl(absl::string_view text) {
  return absl::StartsWith(text, kPlain) || absl::StartsWith(text, kTls);
}

absl::StatusOr<RedisAddress> ParseRedisUrl(absl::string_view url) {
  RedisAddress address;
  if (!IsRedisUrl(url)) return Bad("it does not begin with redis:// or rediss://");
  address.tls = absl::StartsWith(url, kTls);
  url.remove_prefix(address.tls ? kTls.size() : kPlain.size());
  const absl::string_view authority = url.substr(0, url.find('/'));
  const absl::string_view path = url.substr(authority.size());
  const size_t at = authority.rfind('@');
  if (at != absl::string_view::npos) RETURN_IF_ERROR(ReadUser(authority.substr(0, at), address));
  RETURN_IF_ERROR(
      ReadHost(at == absl::string_view::npos ? authority : authority.substr(at + 1), address));
  if (path.size() <= 1) return address;
  const absl::string_view database = path.substr(1);
  if (!std::all_of(database.begin(), database.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(database, &address.database) || address.database > kMaxDatabase) {
    return Bad(absl::StrCat("the database is not a number from 0 to ", kMaxDatabase,
                            " (a / in the password is written %2F)"));
  }
  return address;
}

}  // namespace tessera::store
