// The HTTP port with stub services in one process: what a slow reader does to the streams of
// others, and how many text requests a second one core takes, client included.
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/services/gateway/http/http_fixture.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
using testing::ChatPost;
using testing::HttpGateway;
using testing::Question;
using testing::RawClient;

constexpr int kStreams = 500;
constexpr int kTokens = 100;
constexpr auto kPace = std::chrono::milliseconds(50);
constexpr int kConnections = 16;
constexpr int kRequests = 20'000;  // of a round
constexpr int kRounds = 5;

double Millis(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

double Percentile(std::vector<double>& values, double percent) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(static_cast<double>(values.size() - 1) * percent / 100)];
}

int64_t ResidentKib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atoll(line.c_str() + 6);
  }
  return 0;
}

// Milliseconds between two chunks of a stream, of all streams that read.
std::vector<double> Intervals(bool with_slow_reader) {
  HttpGateway gateway;
  gateway.Start();
  std::unique_ptr<RawClient> slow;
  size_t first = 0;
  if (with_slow_reader) {
    slow = std::make_unique<RawClient>(gateway.port(), 4096);
    slow->Send(ChatPost(Question("slow", R"(,"stream":true)")));
    gateway.decode.Await(first++);
  }
  const int epoll = epoll_create1(0);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port()));
    clients.back()->Send(ChatPost(Question(absl::StrCat(i), R"(,"stream":true)")));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(i);
    epoll_ctl(epoll, EPOLL_CTL_ADD, clients.back()->fd(), &event);
    gateway.decode.Await(first + static_cast<size_t>(i));
  }
  std::atomic<bool> stop{false};
  std::thread flood;
  if (slow) {
    flood = std::thread([&] {
      const auto stream = gateway.decode.Await(0);
      while (!stop) {
        if (!stream->Piece(std::string(4096, '.'))) std::this_thread::sleep_for(kPace / 10);
      }
      stream->End();
    });
  }
  std::thread feed([&] {
    auto next = Clock::now();
    for (int token = 0; token < kTokens; ++token) {
      std::this_thread::sleep_until(next += kPace);
      for (size_t i = 0; i < kStreams; ++i) gateway.decode.Await(first + i)->Piece("token ");
    }
    for (size_t i = 0; i < kStreams; ++i) gateway.decode.Await(first + i)->End();
  });
  std::vector<double> intervals;
  std::vector<Clock::time_point> last(kStreams);
  std::vector<char> buffer(64 << 10);
  for (int open = kStreams; open > 0;) {
    epoll_event events[64];
    const int ready = epoll_wait(epoll, events, 64, -1);
    const auto now = Clock::now();
    for (int i = 0; i < ready; ++i) {
      const size_t at = events[i].data.u32;
      const ssize_t count = recv(clients[at]->fd(), buffer.data(), buffer.size(), 0);
      const bool done =
          count <= 0 || std::string(buffer.data(), static_cast<size_t>(count)).find("[DONE]") !=
                            std::string::npos;
      if (last[at] != Clock::time_point()) intervals.push_back(Millis(now - last[at]));
      last[at] = now;
      if (!done) continue;
      epoll_ctl(epoll, EPOLL_CTL_DEL, clients[at]->fd(), nullptr);
      --open;
    }
  }
  feed.join();
  stop = true;
  if (flood.joinable()) flood.join();
  close(epoll);
  return intervals;
}

void BenchSlowReader() {
  double p99[2];
  for (const bool slow : {false, true}) {
    std::vector<double> intervals = Intervals(slow);
    p99[slow] = Percentile(intervals, 99);
    std::printf("%d streams, a token each %d ms, %-17s  p50 %6.2f ms   p99 %6.2f ms   n %zu\n",
                kStreams, static_cast<int>(kPace.count()), slow ? "a slow reader" : "nobody slow",
                Percentile(intervals, 50), p99[slow], intervals.size());
  }
  std::printf("p99 with a slow reader / without: %.2f\n", p99[1] / p99[0]);
}

// Requests of a round, a connection's one after another.
void Round(HttpGateway& gateway) {
  const std::string request = ChatPost(Question("What is on the shelf?"));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<RawClient>(gateway.port()));
    clients.back()->Send(request);
  }
  for (int i = 0; i < kRequests; ++i) {
    RawClient& client = *clients[static_cast<size_t>(i) % kConnections];
    if (client.Read().status != 200) std::printf("a request failed\n");
    if (i + kConnections < kRequests) client.Send(request);
  }
  gateway.decode.Forget();
}

void BenchRequests() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  sched_setaffinity(0, sizeof(one), &one);  // and all threads to come
  HttpGateway gateway;
  gateway.decode.at_once = [](testing::StubDecode::Stream& stream) {
    stream.Piece("A can.");
    stream.End();
  };
  gateway.Start();
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    Round(gateway);
    const double seconds = Millis(Clock::now() - start) / 1e3;
    std::printf("text requests on one core, client included %8.0f /s   resident %lld KiB\n",
                kRequests / seconds, static_cast<long long>(ResidentKib()));
  }
}

}  // namespace
}  // namespace tessera

int main() {
  tessera::BenchSlowReader();
  tessera::BenchRequests();
}
