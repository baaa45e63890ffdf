#include "tests/support/fake_redis.h"

#include <sys/socket.h>

#include <cstdlib>
#include <utility>

namespace tessera::testing {
namespace {

// A connection's bytes as they are needed; empty results once it has ended.
class Input {
 public:
  explicit Input(int fd) : fd_(fd) {}

  std::string Line() {
    size_t end;
    while ((end = bytes_.find("\r\n")) == std::string::npos) {
      if (!More()) return "";
    }
    return Take(end, 2);
  }
  std::string Word(size_t size) {
    while (bytes_.size() < size + 2) {
      if (!More()) return "";
    }
    return Take(size, 2);
  }

 private:
  bool More() {
    char bytes[65536];
    const ssize_t got = recv(fd_, bytes, sizeof(bytes), 0);
    if (got > 0) bytes_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }
  std::string Take(size_t size, size_t skip) {
    std::string taken = bytes_.substr(0, size);
    bytes_.erase(0, size + skip);
    return taken;
  }

  const int fd_;
  std::string bytes_;
};

std::vector<std::string> ReadCommand(Input& input) {
  std::vector<std::string> words;
  const std::string count = input.Line();
  if (count.empty()) return words;
  for (int i = std::atoi(count.c_str() + 1); i > 0; --i) {
    const std::string size = input.Line();
    if (size.empty()) return {};
    words.push_back(input.Word(std::strtoull(size.c_str() + 1, nullptr, 10)));
  }
  return words;
}

}  // namespace

FakeRedis::FakeRedis(Answer answer, bool hears_log_ins)
    : answer_(std::move(answer)),
      hears_log_ins_(hears_log_ins),
      peer_([this](int fd) { Serve(fd); }) {}

void FakeRedis::Serve(int fd) const {
  Input input(fd);
  while (true) {
    const std::vector<std::string> words = ReadCommand(input);
    if (words.empty()) return;
    const bool probe = words.size() == 2 && words[1] == "tessera:emb:v1:probe" && !hears_log_ins_;
    const std::optional<std::string> reply = words[0] == "PING" ? "+PONG\r\n"
                                             : probe            ? "$-1\r\n"
                                                                : answer_(words);
    if (!reply || !SendAll(fd, *reply)) return;
  }
}

}  // namespace tessera::testing
