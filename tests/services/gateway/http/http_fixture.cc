#include "tests/services/gateway/http/http_fixture.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"

namespace tessera::testing {
namespace {

constexpr int kPatienceMillis = 300'000;  // only a fault takes so long

// The body out of its chunks, and how much of `in` it took; 0: not all is there.
size_t Dechunk(absl::string_view in, std::string& body) {
  size_t at = 0;
  while (true) {
    const size_t end = in.find("\r\n", at);
    if (end == in.npos) return 0;
    const size_t size = std::strtoul(std::string(in.substr(at, end - at)).c_str(), nullptr, 16);
    at = end + 2;
    if (in.size() < at + size + 2) return 0;
    absl::StrAppend(&body, in.substr(at, size));
    at += size + 2;
    if (size == 0) return at;
  }
}

}  // namespace

std::string HttpReply::Header(absl::string_view name) const {
  for (absl::string_view line : absl::StrSplit(head, "\r\n")) {
    if (absl::ConsumePrefix(&line, absl::StrCat(name, ": "))) return std::string(line);
  }
  return "";
}

RawClient::RawClient(int port, int receive_bytes) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  CHECK(fd_.ok());
  if (receive_bytes > 0) {
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
  }
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fd_.Reset();
}

void RawClient::Send(absl::string_view bytes) { SendAll(fd_.get(), bytes); }

bool RawClient::AwaitMore() {
  pollfd poll_fd = {fd_.get(), POLLIN, 0};
  const int ready = poll(&poll_fd, 1, kPatienceMillis);
  EXPECT_EQ(ready, 1) << "nothing came; so far: " << in_.substr(0, 2000);
  return ready == 1 && ReadSome();
}

bool RawClient::ReadSome() {
  char buffer[64 << 10];
  const ssize_t count = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  in_.append(buffer, static_cast<size_t>(count));
  return true;
}

std::string RawClient::ReadAll() {
  while (AwaitMore()) {
  }
  return std::exchange(in_, std::string());
}

HttpReply RawClient::Read() {
  HttpReply reply;
  size_t end = 0;
  while ((end = in_.find("\r\n\r\n")) == in_.npos) {
    if (!AwaitMore()) return {};
  }
  HttpReply head;
  head.head = in_.substr(0, end);
  in_.erase(0, end + 4);
  if (!absl::StartsWith(head.head, "HTTP/1.1 ") ||
      !absl::SimpleAtoi(head.head.substr(9, 3), &head.status)) {
    return {};
  }
  head.chunked = head.Header("transfer-encoding") == "chunked";
  size_t length = 0;
  const bool sized = absl::SimpleAtoi(head.Header("content-length"), &length);
  if (head.status == 100 || head.status == 204) return head;
  while (true) {
    std::string body;
    size_t took = 0;
    if (head.chunked) {
      took = Dechunk(in_, body);
    } else if (sized && in_.size() >= length) {
      body = in_.substr(0, length);
      took = length;
    }
    if (took > 0 || (sized && length == 0)) {
      in_.erase(0, took);
      head.body = body;
      return head;
    }
    if (!AwaitMore()) {
      if (head.chunked || sized) return {};
      head.body = std::exchange(in_, std::string());
      return head;
    }
  }
}

std::string ChatPost(absl::string_view body, absl::string_view headers) {
  return absl::StrCat("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                      body.size(), "\r\n", headers, "\r\n", body);
}

std::string Question(absl::string_view text, absl::string_view more) {
  return absl::StrCat(R"({"model":"m","messages":[{"role":"user","content":")", text, R"("}])",
                      more, "}");
}

void Await(const std::function<bool()>& condition) {
  bool holds = condition();
  for (int i = 0; i < kPatienceMillis && !holds; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    holds = condition();
  }
  EXPECT_TRUE(holds) << "waited in vain";
}

HttpGateway::HttpGateway() {
  options.model_name = "m";
  options.handle_key = std::string(32, 'k');
  http.address = "127.0.0.1:0";
  http.linger_timeout = absl::Milliseconds(200);
}

HttpGateway::~HttpGateway() {
  server.reset();
  decode.Forget();
}

void HttpGateway::Start() { CHECK(TryStart().ok()); }

absl::Status HttpGateway::TryStart() {
  admission = std::make_unique<gateway::Admission>(limits, clock);
  v1::GetModelInfoResponse model;
  model.set_model("m");
  model.set_context_tokens(4096);
  auto started = gateway::http::HttpServer::Start(
      http,
      {.api = {options, {options, resolver_, decode, clock, metrics_, *admission, pace_, running}},
       .model = model,
       .version = "1.2.3",
       .tenant = tenant,
       .health = health,
       .done = done});
  if (!started.ok()) return started.status();
  server = *std::move(started);
  return absl::OkStatus();
}

HttpReply HttpGateway::Send(absl::string_view bytes) {
  RawClient client(port());
  client.Send(bytes);
  return client.Read();
}

}  // namespace tessera::testing
