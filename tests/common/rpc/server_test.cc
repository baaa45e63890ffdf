#include "common/rpc/server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/proto_buffer_writer.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "common/base/error.h"
#include "common/rpc/channel.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::rpc {
namespace {

// grpc.health.v1: HealthCheckRequest {string service = 1}, HealthCheckResponse {enum status = 1}.
// Written by hand, so that no generated code is needed: 1 is SERVING, 2 is NOT_SERVING.
struct HealthAnswer {
  grpc::Status status;
  int serving = -1;
};
HealthAnswer CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service) {
  std::string request;
  if (!service.empty()) {
    request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  }
  grpc::Slice slice(request);
  grpc::ByteBuffer in(&slice, 1), out;
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", in, &queue);
  HealthAnswer answer;
  call->StartCall();
  call->Finish(&out, &answer.status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  if (answer.status.ok() && out.Dump(&slices).ok()) {
    std::string bytes;
    for (const grpc::Slice& part : slices) {
      bytes.append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    if (bytes.size() == 2 && bytes[0] == 0x08) answer.serving = bytes[1];
  }
  return answer;
}

class ServerTest : public ::testing::Test {
 protected:
  v1::GatewayService::CallbackService service_;  // every call is UNIMPLEMENTED
};

TEST_F(ServerTest, HealthKnowsEveryNameAndFollowsReadiness) {
  const auto server =
      Server::Start({.address = "127.0.0.1:0"}, {&service_}, {"tessera.v1.SomeService"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Connect("127.0.0.1:" + std::to_string((*server)->port()));
  for (const char* name : {"", "liveness", "readiness", "tessera.v1.SomeService"}) {
    EXPECT_EQ(CheckHealth(channel, name).serving, 1) << name;
  }
  EXPECT_EQ(CheckHealth(channel, "nobody").status.error_code(), grpc::StatusCode::NOT_FOUND);
  (*server)->SetReady(false);
  EXPECT_EQ(CheckHealth(channel, "liveness").serving, 1);
  for (const char* name : {"", "readiness", "tessera.v1.SomeService"}) {
    EXPECT_EQ(CheckHealth(channel, name).serving, 2) << name;
  }
}

TEST_F(ServerTest, AProxyOfTheEnvironmentIsNotUsed) {
  const auto server = Server::Start({.address = "127.0.0.1:0"}, {&service_}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  for (const char* name : {"grpc_proxy", "https_proxy", "http_proxy"}) {
    ASSERT_EQ(setenv(name, "http://127.0.0.1:1", 1), 0);  // where nobody listens
    const auto channel = Connect("127.0.0.1:" + std::to_string((*server)->port()));
    EXPECT_EQ(CheckHealth(channel, "").serving, 1) << name;
    unsetenv(name);
  }
}

TEST_F(ServerTest, AConnectionWithoutCallsIsEnded) {
  const auto server = Server::Start(
      {.address = "127.0.0.1:0", .connection_idle = absl::Milliseconds(200)}, {&service_}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Connect("127.0.0.1:" + std::to_string((*server)->port()));
  const auto patience = std::chrono::system_clock::now() + std::chrono::minutes(1);
  ASSERT_TRUE(channel->WaitForConnected(patience));
  EXPECT_TRUE(channel->WaitForStateChange(GRPC_CHANNEL_READY, patience));
  int serving = -1;  // one may meet the end of the next connection
  while (serving != 1 && std::chrono::system_clock::now() < patience) {
    serving = CheckHealth(channel, "liveness").serving;
  }
  EXPECT_EQ(serving, 1) << "a call connects again";
}

TEST_F(ServerTest, OneThatIsNotReadySaysSoFromTheFirst) {
  const auto server = Server::Start({.address = "127.0.0.1:0", .ready = false}, {&service_},
                                    {"tessera.v1.SomeService"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = Connect("127.0.0.1:" + std::to_string((*server)->port()));
  EXPECT_EQ(CheckHealth(channel, "liveness").serving, 1);
  for (const char* name : {"", "readiness", "tessera.v1.SomeService"}) {
    EXPECT_EQ(CheckHealth(channel, name).serving, 2) << name;
  }
}

TEST_F(ServerTest, ATakenPortIsAnErrorThatNamesIt) {
  const auto first = Server::Start({.address = "127.0.0.1:0"}, {&service_}, {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = "127.0.0.1:" + std::to_string((*first)->port());
  const auto second = Server::Start({.address = address}, {&service_}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(base::ReasonOf(second.status()), "ADDRESS_UNAVAILABLE");
  EXPECT_NE(second.status().message().find(address), absl::string_view::npos);
}

TEST_F(ServerTest, ACompressedMessageIsRefusedBeforeItIsInflated) {
  const auto server = Server::Start({.address = "127.0.0.1:0"}, {&service_}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub =
      v1::GatewayService::NewStub(Connect("127.0.0.1:" + std::to_string((*server)->port())));
  v1::GenerateRequest request;
  request.set_model(std::string(4 << 20, 'a'));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GenerateResponse response;
  const grpc::Status status = stub->Generate(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_NE(status.error_message().find("gzip"), std::string::npos) << status.error_message();
}

TEST_F(ServerTest, AnAddressThatIsNoneIsAnError) {
  for (const char* address : {"nonsense", "256.0.0.1:80", "127.0.0.1:99999"}) {
    EXPECT_FALSE(Server::Start({.address = address}, {&service_}, {}).ok()) << address;
  }
}

TEST_F(ServerTest, WithoutAnAddressItIsReachableInProcess) {
  const auto server = Server::Start({}, {&service_}, {"a.B"});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ((*server)->port(), 0);
  EXPECT_EQ(CheckHealth((*server)->InProcessChannel(), "a.B").serving, 1);
}

TEST_F(ServerTest, AMethodThatIsNotWrittenIsNoBadMessage) {
  const auto server = Server::Start({}, {&service_}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::GatewayService::NewStub((*server)->InProcessChannel());
  grpc::ClientContext context;
  v1::GetModelInfoResponse response;
  EXPECT_EQ(stub->GetModelInfo(&context, {}, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerTest, ShutdownMayBeCalledTwice) {
  const auto server = Server::Start({.address = "127.0.0.1:0"}, {&service_}, {});
  ASSERT_TRUE(server.ok());
  (*server)->Shutdown(absl::Milliseconds(10));
  (*server)->Shutdown(absl::Milliseconds(10));
}

}  // namespace
}  // namespace tessera::rpc
