#include "tests/support/redis_server.h"

#include <sys/socket.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "tests/support/loopback.h"

namespace tessera::testing {
namespace {

std::string Encoded(const std::vector<std::string>& words) {
  std::string out = absl::StrCat("*", words.size(), "\r\n");
  for (const std::string& word : words)
    absl::StrAppend(&out, "$", word.size(), "\r\n", word, "\r\n");
  return out;
}

bool Receive(int fd, std::string& into) {
  char bytes[65536];
  const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
  if (got > 0) into.append(bytes, static_cast<size_t>(got));
  return got > 0;
}

// Reads one reply; empty when the server hung up.
std::string ReadReply(int fd) {
  std::string bytes;
  size_t end = std::string::npos;
  while ((end = bytes.find("\r\n")) == std::string::npos) {
    if (!Receive(fd, bytes)) return "";
  }
  const std::string line = bytes.substr(0, end);
  if (line[0] == '-' || line[0] == '*') return line[0] == '-' ? line : bytes;
  if (line[0] != '$') return line.substr(1);
  int64_t length = 0;
  CHECK(absl::SimpleAtoi(line.substr(1), &length));
  if (length < 0) return "(nil)";
  while (bytes.size() < end + 2 + length) {
    if (!Receive(fd, bytes)) return "";
  }
  return bytes.substr(end + 2, length);
}

}  // namespace

RedisServer::RedisServer(std::vector<std::string> arguments, bool tls)
    : arguments_(std::move(arguments)), tls_(tls), port_(FreeServerPort()) {
  Start();
}

std::string RedisServer::Url(const std::string& user) const {
  return absl::StrCat(tls_ ? "rediss://" : "redis://", user, "127.0.0.1:", port_);
}

void RedisServer::Start() {
  const std::string port = absl::StrCat(port_);
  std::vector<std::string> line = {
      "redis-server", "--bind", "127.0.0.1",    "--port", tls_ ? "0" : port, "--dir", dir_.path(),
      "--save",       "",       "--appendonly", "no"};
  if (tls_) line.insert(line.end(), {"--tls-port", port});
  line.insert(line.end(), arguments_.begin(), arguments_.end());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  process_.emplace(line, dir_.path() + "/log");
  while (!Answers()) {
    CHECK(std::chrono::steady_clock::now() < deadline);
    // Another took the port meanwhile, or the one before has not let go of it.
    if (!process_->Runs()) process_.emplace(line, dir_.path() + "/log");
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

void RedisServer::Kill() {
  process_->Signal(SIGKILL);
  process_->Wait();
}

void RedisServer::Pause() { process_->Signal(SIGSTOP); }

void RedisServer::Resume() { process_->Signal(SIGCONT); }

bool RedisServer::Answers() const {
  const Fd fd = ConnectTo(port_);
  if (!fd.ok()) return false;
  if (tls_) return true;
  return SendAll(fd.get(), Encoded({"PING"})) && !ReadReply(fd.get()).empty();
}

std::string RedisServer::Ask(const std::vector<std::string>& words, const std::string& password,
                             int database) const {
  const Fd fd = ConnectTo(port_);
  if (!fd.ok()) return "";
  if (!password.empty()) {
    SendAll(fd.get(), Encoded({"AUTH", password}));
    CHECK_EQ(ReadReply(fd.get()), "OK");
  }
  if (database != 0) {
    SendAll(fd.get(), Encoded({"SELECT", absl::StrCat(database)}));
    CHECK_EQ(ReadReply(fd.get()), "OK");
  }
  SendAll(fd.get(), Encoded(words));
  return ReadReply(fd.get());
}

}  // namespace tessera::testing
