#include "common/store/redis/redis_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::store {
namespace {

absl::Status Closed(absl::string_view why) {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_CLOSED",
                     absl::StrCat("the connection was lost: ", why));
}

absl::Status TimedOut() {
  return base::Error(absl::StatusCode::kDeadlineExceeded, "REDIS_TIMEOUT", "no answer in time");
}

absl::Status Unreachable(int error) {
  return base::Error(absl::StatusCode::kUnavailable, "REDIS_UNREACHABLE",
                     absl::StrCat("cannot connect: ", std::strerror(error)));
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

RedisSocket::~RedisSocket() {
  ssl_.reset();
  close(fd_);
}

absl::Status RedisSocket::Wait(short events, absl::Time deadline) const {
  while (true) {
    const absl::Duration left = deadline - base::RealClock().Now();
    if (left <= absl::ZeroDuration()) return TimedOut();
    pollfd entry = {fd_, events, 0};
    // Rounded up, or the last millisecond would be spent spinning.
    const int64_t ms = std::min<int64_t>(absl::ToInt64Milliseconds(left) + 1, 60'000);
    const int ready = poll(&entry, 1, static_cast<int>(ms));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Closed(std::strerror(errno));
  }
}

absl::Status RedisSocket::Open(const SocketAddress& address, absl::Time deadline) {
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINPROGRESS) return Unreachable(errno);
  RETURN_IF_ERROR(Wait(POLLOUT, deadline));
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? absl::OkStatus() : Unreachable(error);
}

absl::Status RedisSocket::WaitForTls(int result, absl::Time deadline) {
  const int system_error = errno;
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return Wait(POLLIN, deadline);
    case SSL_ERROR_WANT_WRITE:
      return Wait(POLLOUT, deadline);
    case SSL_ERROR_ZERO_RETURN:
      return Closed("closed by the server");
    case SSL_ERROR_SYSCALL:
      ERR_clear_error();
      return Closed(system_error == 0 ? "closed by the server" : std::strerror(system_error));
    default:
      return base::Error(absl::StatusCode::kUnavailable, "REDIS_TLS",
                         absl::StrCat("TLS: ", TlsErrorText(ssl_.get())));
  }
}

absl::Status RedisSocket::Handshake(const RedisTls& tls, absl::Time deadline) {
  ssl_ = tls.Over(fd_, base::RealClock().Now());
  while (true) {
    ERR_clear_error();
    errno = 0;
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return absl::OkStatus();
    RETURN_IF_ERROR(WaitForTls(result, deadline));
  }
}

absl::StatusOr<std::unique_ptr<RedisSocket>> RedisSocket::Connect(
    absl::Span<const SocketAddress> addresses, const RedisTls* tls, absl::Time deadline) {
  absl::Status last = Unreachable(EADDRNOTAVAIL);
  for (size_t i = 0; i < addresses.size(); ++i) {
    const absl::Time now = base::RealClock().Now();
    const absl::Time share = now + (deadline - now) / static_cast<int64_t>(addresses.size() - i);
    const int fd = socket(addresses[i].storage.ss_family,
                          SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) {
      last = Unreachable(errno);
      continue;
    }
    std::unique_ptr<RedisSocket> made(new RedisSocket(fd));
    last = made->Open(addresses[i], share);
    if (last.ok() && tls != nullptr) last = made->Handshake(*tls, share);
    if (last.ok()) return made;
  }
  return last;
}

absl::Status RedisSocket::Write(absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    if (base::RealClock().Now() >= deadline) return TimedOut();
    const size_t size = std::min<size_t>(bytes.size(), INT_MAX);
    errno = 0;
    if (ssl_ == nullptr) {
      const ssize_t done = send(fd_, bytes.data(), size, MSG_NOSIGNAL);
      if (done >= 0) {
        bytes.remove_prefix(static_cast<size_t>(done));
      } else if (WouldBlock()) {
        RETURN_IF_ERROR(Wait(POLLOUT, deadline));
      } else {
        return Closed(std::strerror(errno));
      }
      continue;
    }
    ERR_clear_error();
    const int done = SSL_write(ssl_.get(), bytes.data(), static_cast<int>(size));
    if (done > 0) {
      bytes.remove_prefix(static_cast<size_t>(done));
    } else {
      RETURN_IF_ERROR(WaitForTls(done, deadline));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> RedisSocket::Read(absl::Span<char> into, absl::Time deadline) {
  while (true) {
    if (base::RealClock().Now() >= deadline) return TimedOut();
    const size_t size = std::min<size_t>(into.size(), INT_MAX);
    errno = 0;
    if (ssl_ == nullptr) {
      const ssize_t done = recv(fd_, into.data(), size, 0);
      if (done > 0) return static_cast<size_t>(done);
      if (done == 0) return Closed("closed by the server");
      if (!WouldBlock()) return Closed(std::strerror(errno));
      RETURN_IF_ERROR(Wait(POLLIN, deadline));
      continue;
    }
    ERR_clear_error();
    const int done = SSL_read(ssl_.get(), into.data(), static_cast<int>(size));
    if (done > 0) return static_cast<size_t>(done);
    RETURN_IF_ERROR(WaitForTls(done, deadline));
  }
}

bool RedisSocket::IsQuiet() {
  char byte;
  errno = 0;
  if (ssl_ == nullptr) return recv(fd_, &byte, 1, MSG_PEEK) < 0 && WouldBlock();
  ERR_clear_error();
  const int got = SSL_peek(ssl_.get(), &byte, 1);  // takes in what TLS sends for itself
  return got <= 0 && SSL_get_error(ssl_.get(), got) == SSL_ERROR_WANT_READ;
}

}  // namespace tessera::store
