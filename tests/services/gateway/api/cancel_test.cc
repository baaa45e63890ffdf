// FAULTS B074: a client that goes while its answer ends, at any moment of it.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/rpc/channel.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/stub_fleet.h"

namespace tessera::gateway {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

constexpr int kClients = 8;
constexpr int kCalls = 10'000;  // of all clients

// One call, over when `ended` has its status.
class OneCall {
 public:
  OneCall() { context_.set_wait_for_ready(true); }
  virtual ~OneCall() = default;
  void Cancel() { context_.TryCancel(); }

  // Told twice, it throws. Shared: who waits may be gone before it is all told.
  const std::shared_ptr<std::promise<grpc::Status>> ended =
      std::make_shared<std::promise<grpc::Status>>();

 protected:
  grpc::ClientContext context_;
};

class UnaryCall final : public OneCall {
 public:
  UnaryCall(v1::GatewayService::Stub& stub, v1::GenerateRequest request)
      : request_(std::move(request)) {
    stub.async()->Generate(&context_, &request_, &response_, [ended = ended](grpc::Status status) {
      ended->set_value(std::move(status));
    });
  }

 private:
  const v1::GenerateRequest request_;
  v1::GenerateResponse response_;
};

class StreamCall final : public OneCall, grpc::ClientReadReactor<v1::GenerateStreamResponse> {
 public:
  StreamCall(v1::GatewayService::Stub& stub, v1::GenerateRequest request) {
    *request_.mutable_request() = std::move(request);
    stub.async()->GenerateStream(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }

 private:
  void OnReadDone(bool ok) override {
    if (ok) StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const auto keep = ended;
    keep->set_value(status);
  }

  v1::GenerateStreamRequest request_;
  v1::GenerateStreamResponse response_;
};

v1::GenerateRequest Question(uint32_t picture) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data("picture " +
                                                                        std::to_string(picture));
  message.add_parts()->set_text("What?");
  return request;
}

struct Ends {
  std::atomic<int> ok{0}, cancelled{0}, other{0};
};

// Calls one after another, each cancelled after up to twice the time that one takes.
void Come(const std::string& address, uint32_t seed, Ends& ends) {
  const auto stub = v1::GatewayService::NewStub(rpc::Connect(address));
  std::mt19937 random(seed);
  microseconds usual(1000);
  for (int i = 0; i < kCalls / kClients; ++i) {
    // Half are about a picture that is known by then.
    v1::GenerateRequest request = Question(i % 2 == 0 ? 0 : static_cast<uint32_t>(random()));
    const auto start = steady_clock::now();
    std::unique_ptr<OneCall> call;
    if (i % 4 < 2) {
      call = std::make_unique<UnaryCall>(*stub, std::move(request));
    } else {
      call = std::make_unique<StreamCall>(*stub, std::move(request));
    }
    std::future<grpc::Status> ended = call->ended->get_future();
    const microseconds patience(random() % static_cast<uint32_t>(2 * usual.count()));
    const bool whole = i % 10 == 0;  // tells how long one takes
    if (!whole && ended.wait_for(patience) != std::future_status::ready) call->Cancel();
    const grpc::StatusCode code = ended.get().error_code();
    if (code == grpc::StatusCode::OK) {
      const auto took = std::chrono::duration_cast<microseconds>(steady_clock::now() - start);
      if (whole) usual = std::max(took, microseconds(1));
      ++ends.ok;
    } else {
      ++(code == grpc::StatusCode::CANCELLED ? ends.cancelled : ends.other);
    }
  }
}

TEST(CancelTest, CallsCancelledAtAnyMomentEndOnceAndLeaveNothingBehind) {
  testing::StubFleet fleet;
  Ends ends;
  std::vector<std::thread> clients;
  for (uint32_t seed = 0; seed < kClients; ++seed) {
    clients.emplace_back([&, seed] { Come(fleet.address(), seed, ends); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(ends.ok + ends.cancelled, kCalls);
  EXPECT_EQ(ends.other, 0);
  EXPECT_GT(ends.ok, kCalls / 20);
  EXPECT_GT(ends.cancelled, kCalls / 20);
  const auto left = [&fleet] {
    return fleet.gateway().inflight() + fleet.vision().calls() + fleet.decode().calls();
  };
  const auto deadline = steady_clock::now() + std::chrono::minutes(5);
  while (left() != 0 && steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(fleet.gateway().inflight(), 0);
  EXPECT_EQ(fleet.vision().calls(), 0);
  EXPECT_EQ(fleet.decode().calls(), 0);
}

}  // namespace
}  // namespace tessera::gateway
