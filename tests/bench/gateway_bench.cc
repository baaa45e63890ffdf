// What a gateway and its two hops add: one gateway, a stub vision and a stub decode that answer at
// once, each behind a TCP port of this machine, in one process with the clients; beside it the same
// clients at a server that answers at once itself.
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/stub_fleet.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClients = 16;
constexpr int kRequests = 4000;                       // of a round, all clients together
constexpr auto kGap = std::chrono::milliseconds(80);  // of one client, where they are paced
constexpr size_t kPictureBytes = 20 << 10;

v1::GenerateRequest Question(uint64_t picture) {
  std::string bytes(kPictureBytes, 'p');
  bytes.replace(0, sizeof(picture), reinterpret_cast<const char*>(&picture), sizeof(picture));
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data(std::move(bytes));
  message.add_parts()->set_text("What is the price on row 2?");
  return request;
}

// The floor: one hop, no gateway.
class AnswersAtOnce final : public v1::GatewayService::CallbackService {
 public:
  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest*,
                                     v1::GenerateResponse* response) override {
    response->set_text("37");
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

double Ask(v1::GatewayService::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const auto start = Clock::now();
  const grpc::Status status = stub.Generate(&context, request, &response);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    std::exit(1);
  }
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Milliseconds of each answer. `paced`: each client asks every kGap, else when it has its answer.
std::vector<double> Round(const std::string& address, bool fresh, bool paced) {
  static std::atomic<uint64_t> next_picture{1};
  std::vector<std::vector<double>> times(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&mine = times[static_cast<size_t>(i)], &address, fresh, paced, i] {
      // A connection of its own, as a client on another machine has.
      grpc::ChannelArguments arguments = rpc::BasicArguments({});
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto channel =
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
      const auto stub = v1::GatewayService::NewStub(channel);
      Ask(*stub, Question(0));  // connects, and makes the picture 0 known
      auto turn = Clock::now() + kGap * i / kClients;
      for (int n = 0; n < (paced ? kRequests / 4 : kRequests) / kClients; ++n) {
        const v1::GenerateRequest request = Question(fresh ? next_picture++ : 0);
        if (paced) std::this_thread::sleep_until(turn += kGap);
        mine.push_back(Ask(*stub, request));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::vector<double> all;
  for (const std::vector<double>& some : times) all.insert(all.end(), some.begin(), some.end());
  return all;
}

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;  // milliseconds
};

Percentiles Measure(const char* what, const std::string& address, bool fresh, bool paced) {
  const auto start = Clock::now();
  std::vector<double> times = Round(address, fresh, paced);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::sort(times.begin(), times.end());
  const auto at = [&times](double part) {
    return times[static_cast<size_t>(static_cast<double>(times.size() - 1) * part)];
  };
  std::printf("%-14s %-9s %-6s picture   p50 %6.2f   p90 %6.2f   p99 %6.2f ms   %6.0f /s\n", what,
              paced ? "paced," : "at once,", fresh ? "new" : "known", at(0.5), at(0.9), at(0.99),
              static_cast<double>(times.size()) / seconds);
  return {at(0.5), at(0.9), at(0.99)};
}

void Compare(const std::string& floor, const std::string& gateway, bool fresh, bool paced) {
  const Percentiles without = Measure("without", floor, fresh, paced);
  const Percentiles with = Measure("with a gateway", gateway, fresh, paced);
  std::printf("%-31s added   p50 %6.2f   p90 %6.2f   p99 %6.2f ms\n", "", with.p50 - without.p50,
              with.p90 - without.p90, with.p99 - without.p99);
}

}  // namespace
}  // namespace tessera

int main() {
  using namespace tessera;
  AnswersAtOnce service;
  const auto server = rpc::Server::Start({.address = "127.0.0.1:0"}, {&service}, {"floor"});
  CHECK(server.ok());
  const std::string floor = absl::StrCat("127.0.0.1:", (*server)->port());
  testing::StubFleet fleet;
  std::printf("%d clients\n", kClients);
  for (const bool paced : {true, false}) {
    for (const bool fresh : {false, true}) Compare(floor, fleet.address(), fresh, paced);
  }
}
