#include "tests/common/ops/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace tessera::ops {

RawClient::RawClient(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  CHECK_GE(socket_, 0);
  const timeval patience = {120, 0};  // only a fault waits for so long
  CHECK_EQ(setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  CHECK_EQ(setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

RawClient::~RawClient() { close(socket_); }

bool RawClient::Send(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawClient::EndSending() { shutdown(socket_, SHUT_WR); }

bool RawClient::Receive() {
  char bytes[65536];
  const ssize_t count = recv(socket_, bytes, sizeof(bytes), 0);
  CHECK(count >= 0 || errno == ECONNRESET);  // else: nothing came in time
  if (count > 0) received_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

std::string RawClient::ReadAnswer(bool head_only) {
  size_t end = std::string::npos;
  while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
    if (!Receive()) return std::exchange(received_, "");
  }
  end += 4;
  const absl::string_view key = "Content-Length: ";
  const size_t length_at = received_.find(std::string(key));
  size_t length = 0;
  if (!head_only && length_at < end) {
    const size_t from = length_at + key.size();
    const std::string digits = received_.substr(from, received_.find('\r', from) - from);
    CHECK(absl::SimpleAtoi(digits, &length));
  }
  while (received_.size() < end + length) {
    if (!Receive()) break;
  }
  const std::string answer = received_.substr(0, end + length);
  received_.erase(0, answer.size());
  return answer;
}

std::string RawClient::ReadAll() {
  while (Receive()) {
  }
  return std::exchange(received_, "");
}

bool RawClient::HasEnded() {
  char byte;
  const ssize_t count = recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

std::string Ask(int port, absl::string_view request) {
  RawClient client(port);
  client.Send(request);
  client.EndSending();
  return client.ReadAll();
}

std::string Get(int port, absl::string_view target) {
  return Ask(port, absl::StrCat("GET ", target, " HTTP/1.1\r\nHost: x\r\n\r\n"));
}

}  // namespace tessera::ops
