#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/common/ops/raw_client.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

LocalServerOptions WithOperations() {
  LocalServerOptions options;
  options.model_dir = "models/shelf-vqa";
  options.reflection = false;
  options.ops_address = "127.0.0.1:0";
  options.decode.kv_cache_bytes.bytes = 8 << 20;
  return options;
}

bool Ask(LocalServer& server) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->set_text("What is it?");
  request.mutable_options()->set_max_tokens(4);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  return v1::GatewayService::NewStub(server.Channel())->Generate(&context, request, &response).ok();
}

TEST(LocalServerOpsTest, EveryPageIsServedWhileItAnswersAndDrains) {
  const auto server = LocalServer::Start(WithOperations()).value();
  const int port = server->ops_port();
  std::atomic<bool> done{false};
  std::vector<std::thread> readers;
  for (const char* page : {"/metrics", "/healthz", "/readyz", "/debug/state"}) {
    readers.emplace_back([&done, port, page] {
      do {
        EXPECT_THAT(ops::Get(port, page), StartsWith("HTTP/1.1 ")) << page;
      } while (!done);
    });
  }
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Ask(*server));
  EXPECT_THAT(ops::Get(port, "/readyz"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(server->MetricsText(),
              HasSubstr("tessera_gateway_requests_total{model_name=\"shelf-vqa\",code=\"OK\","
                        "method=\"Generate\",stream=\"false\"} 10\n"));
  server->Drain(absl::Seconds(60));
  EXPECT_THAT(ops::Get(port, "/readyz"), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ops::Get(port, "/healthz"), EndsWith("\r\n\r\nok\n"));
  done = true;
  for (std::thread& reader : readers) reader.join();
}

TEST(LocalServerOpsTest, AModelThatCannotBeLoadedEndsThePortToo) {
  LocalServerOptions options = WithOperations();
  options.vision.prepare_threads = -1;
  EXPECT_FALSE(LocalServer::Start(options).ok());
}

TEST(LocalServerOpsTest, ATakenOperationsPortIsAnError) {
  const auto server = LocalServer::Start(WithOperations()).value();
  LocalServerOptions options = WithOperations();
  options.ops_address = "127.0.0.1:" + std::to_string(server->ops_port());
  EXPECT_EQ(base::ReasonOf(LocalServer::Start(options).status()), "ADDRESS_UNAVAILABLE");
}

}  // namespace
}  // namespace tessera::tools
