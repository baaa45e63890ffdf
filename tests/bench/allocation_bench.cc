// `allocation_bench [--places]`: what a gateway allocates for a request. The gateway is alone in
// this process, which is counted whole; a stub vision and a stub decode are in a second one, the
// client in a third. Beside it a server of this process that answers at once itself, with the same
// messages: the floor. Each figure is the difference of two numbers of requests, so neither
// connections nor the first use of anything are in it. --places: where in the code, too.
#include <grpcpp/client_context.h>
#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/bench/memory_probe.h"
#include "tests/support/child_process.h"
#include "tests/support/loopback.h"
#include "tests/support/stub_fleet.h"

namespace tessera::bench {
namespace {

constexpr size_t kPictureBytes = 20 << 10;
constexpr uint32_t kPieces = 32;
// Longer than the gateway needs for a piece, or it would join two in one message.
constexpr absl::Duration kGap = absl::Milliseconds(2);

struct Case {
  const char* name;
  const char* what;
  bool picture = false, stream = false;
  uint32_t pieces = 1;
  int requests = 200;  // beyond the 20 that both counts have
};

constexpr int kFewRequests = 20;
constexpr Case kCases[] = {
    {.name = "text", .what = "text only, unary"},
    {.name = "picture", .what = "known picture of 20 KiB, unary", .picture = true},
    {.name = "stream1", .what = "text only, streamed, 1 piece", .stream = true},
    {.name = "stream32",
     .what = "text only, streamed, 32 pieces",
     .stream = true,
     .pieces = kPieces,
     .requests = 40}};

// The client.

v1::GenerateRequest Question(const Case& test) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  if (test.picture) {
    message.add_parts()->mutable_image()->mutable_inline_data()->set_data(
        std::string(kPictureBytes, 'p'));
  }
  message.add_parts()->set_text("What is the price on row 2?");
  request.mutable_options()->set_max_tokens(test.pieces);
  return request;
}

void AskStream(v1::GatewayService::Stub& stub, const Case& test) {
  grpc::ClientContext context;
  v1::GenerateStreamRequest request;
  *request.mutable_request() = Question(test);
  const auto reader = stub.GenerateStream(&context, request);
  v1::GenerateStreamResponse event;
  uint32_t pieces = 0;
  while (reader->Read(&event)) pieces += event.has_text() ? 1 : 0;
  CHECK(reader->Finish().ok());
  if (pieces != test.pieces) std::fprintf(stderr, "%u pieces came as %u\n", test.pieces, pieces);
}

// `arguments`: case, port, requests.
int Client(char** arguments) {
  const Case* const test = std::find_if(std::begin(kCases), std::end(kCases), [&](const Case& one) {
    return absl::string_view(one.name) == arguments[0];
  });
  CHECK(test != std::end(kCases));
  const auto channel = rpc::Connect(absl::StrCat("127.0.0.1:", arguments[1]));
  const auto stub = v1::GatewayService::NewStub(channel);
  for (int i = std::atoi(arguments[2]); i > 0; --i) {
    if (test->stream) {
      AskStream(*stub, *test);
      continue;
    }
    grpc::ClientContext context;
    v1::GenerateResponse response;
    CHECK(stub->Generate(&context, Question(*test), &response).ok());
  }
  return 0;
}

// Stub vision and decode, until this process is killed. `arguments`: their ports.
int Peers(char** arguments) {
  const testing::StubPeers peers(std::atoi(arguments[0]), std::atoi(arguments[1]), kGap);
  while (true) absl::SleepFor(absl::Hours(1));
}

// The floor: the client's hop alone.

class Pieces final : public grpc::ServerWriteReactor<v1::GenerateStreamResponse> {
 public:
  explicit Pieces(uint32_t pieces) : left_(pieces) { Next(); }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    event_.Clear();
    if (left_-- > 0) {
      absl::SleepFor(kGap);
      event_.set_text("37");
      return StartWrite(&event_);
    }
    event_.mutable_end()->set_finish_reason(v1::FINISH_REASON_STOP);
    StartWriteAndFinish(&event_, grpc::WriteOptions(), grpc::Status::OK);
  }
  uint32_t left_;
  v1::GenerateStreamResponse event_;
};

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
  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext*, const v1::GenerateStreamRequest* request) override {
    return new Pieces(request->request().options().max_tokens());
  }
};

// The counted process.

MemoryUse Count(const Case& test, int port, int requests) {
  const std::vector<std::string> command = {"/proc/self/exe", "client", test.name,
                                            absl::StrCat(port), absl::StrCat(requests)};
  OpenWindow({.least_allocated = 1});
  testing::ChildProcess client(command, "/dev/stderr");
  CHECK_EQ(client.Wait(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the calls end behind it
  return CloseWindow();
}

struct PerRequest {
  double blocks = 0, bytes = 0;
  std::array<double, kOwners> by_owner{};  // blocks
};

PerRequest Measure(const Case& test, const char* who, int port, bool places) {
  Count(test, port, kFewRequests);  // warms up
  const MemoryUse few = Count(test, port, kFewRequests);
  const MemoryUse many = Count(test, port, kFewRequests + test.requests);
  const auto each = [&test](uint64_t more, uint64_t less) {
    return (static_cast<double>(more) - static_cast<double>(less)) / test.requests;
  };
  PerRequest result;
  result.blocks = each(many.allocated.all().count, few.allocated.all().count);
  result.bytes = each(many.allocated.all().bytes, few.allocated.all().bytes);
  for (size_t i = 0; i < kOwners; ++i) {
    result.by_owner[i] = each(many.allocated[i].count, few.allocated[i].count);
  }
  std::printf("%-32s %-12s %8.1f %8.1f %8.1f %8.1f %8.1f %10.0f\n", test.what, who, result.blocks,
              result.by_owner[0], result.by_owner[1], result.by_owner[2], result.by_owner[3],
              result.bytes);
  std::fflush(stdout);
  if (places) PrintPlaces(40, 0, static_cast<uint64_t>(kFewRequests + test.requests));
  return result;
}

int Main(bool places) {
  CheckHooks();
  AnswersAtOnce service;
  const auto floor = rpc::Server::Start({.address = "127.0.0.1:0"}, {&service}, {"floor"});
  CHECK(floor.ok());
  const int vision = testing::FreeServerPort(), decode = testing::FreeServerPort();
  const std::vector<std::string> command = {"/proc/self/exe", "peers", absl::StrCat(vision),
                                            absl::StrCat(decode)};
  const testing::ChildProcess peers(command, "/dev/stderr");
  testing::StubFleet fleet(vision, decode);
  const std::string address = fleet.address();
  const int gateway = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  std::printf("%-32s %-12s %8s %8s %8s %8s %8s %10s\n", "allocations of a request", "", "all",
              "binary", "gRPC", "protobuf", "others", "bytes");
  std::vector<double> added;
  for (const Case& test : kCases) {
    const PerRequest without = Measure(test, "floor", (*floor)->port(), false);
    const PerRequest with = Measure(test, "gateway", gateway, places);
    added.push_back(with.blocks - without.blocks);
    std::printf("%-32s %-12s %8.1f %8.1f %8.1f %8.1f %8.1f %10.0f\n", "", "added", added.back(),
                with.by_owner[0] - without.by_owner[0], with.by_owner[1] - without.by_owner[1],
                with.by_owner[2] - without.by_owner[2], with.by_owner[3] - without.by_owner[3],
                with.bytes - without.bytes);
  }
  std::printf("added for each further piece of a stream %8.1f\n",
              (added[3] - added[2]) / (kPieces - 1));
  return 0;
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) {
  const absl::string_view word = argc > 1 ? argv[1] : "";
  if (word == "client" && argc == 5) return tessera::bench::Client(argv + 2);
  if (word == "peers" && argc == 4) return tessera::bench::Peers(argv + 2);
  return tessera::bench::Main(word == "--places");
}
