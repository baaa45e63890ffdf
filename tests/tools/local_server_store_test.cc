// The one process beside a Redis, and addresses that it cannot have.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/status.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/loopback.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

using ::testing::HasSubstr;

constexpr char kShelf[] = "models/shelf-vqa";

LocalServerOptions StoreOptions() {
  LocalServerOptions options;
  options.model_dir = kShelf;
  options.decode.kv_cache_bytes.bytes = 8 << 20;
  options.store.redis.connect_timeout = absl::Minutes(1);  // a busy machine's Redis is no miss
  options.store.redis.operation_timeout = absl::Minutes(1);
  return options;
}

bool IsUp(LocalServer& server) {
  return absl::StrContains(
      server.MetricsText(),
      "tessera_embedding_cache_up{model_name=\"shelf-vqa\",tier=\"store\"} 1\n");
}

// What the first question about a picture of a fresh server got, and from where.
struct Answered {
  std::string text;
  v1::CacheTier cache = v1::CACHE_TIER_UNSPECIFIED;
};

// `with_redis`: waits until it has its connection.
Answered AskAfresh(const LocalServerOptions& options,
                   const std::string& picture = "demo/shelf1.jpg", bool with_redis = true) {
  const auto server = LocalServer::Start(options);
  if (!server.ok()) return {server.status().ToString()};
  while (with_redis && !IsUp(**server)) std::this_thread::yield();
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data(
      base::ReadFile(absl::StrCat(kShelf, "/", picture)).value());
  message.add_parts()->set_text("What is the price on row 2?");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status =
      v1::GatewayService::NewStub((*server)->Channel())->Generate(&context, request, &response);
  if (!status.ok()) return {rpc::FromGrpc(status).ToString()};
  return {response.text(), response.receipt().images(0).cache()};  // dies when all is written
}

TEST(LocalServerStoreTest, AfterARestartThePictureComesFromRedis) {
  testing::RedisServer redis;
  redis.Start();
  LocalServerOptions options = StoreOptions();
  options.store.store = redis.Url();
  Answered answer = AskAfresh(options);
  EXPECT_EQ(answer.text, " 37");
  EXPECT_EQ(answer.cache, v1::CACHE_TIER_COMPUTED);
  EXPECT_THAT(redis.Ask({"KEYS", "*"}), HasSubstr("tessera:emb:v1:"));
  answer = AskAfresh(options);
  EXPECT_EQ(answer.text, " 37");
  EXPECT_EQ(answer.cache, v1::CACHE_TIER_STORE);
  // FAULTS B044: nothing of the first picture under the name of the first of this process.
  answer = AskAfresh(options, "demo/shelf3.jpg");
  EXPECT_EQ(answer.text, " 25");
  EXPECT_EQ(answer.cache, v1::CACHE_TIER_COMPUTED);

  redis.Kill();
  options.store.redis.connect_timeout = absl::Milliseconds(100);
  answer = AskAfresh(options, "demo/shelf1.jpg", /*with_redis=*/false);
  EXPECT_EQ(answer.text, " 37");
  EXPECT_EQ(answer.cache, v1::CACHE_TIER_COMPUTED);
}

TEST(LocalServerStoreTest, RecordsOfAnotherKeyAreNotBelieved) {
  testing::RedisServer redis;
  redis.Start();
  const testing::TempDir dir;
  LocalServerOptions options = StoreOptions();
  options.store.store = redis.Url();
  options.store.key_file = dir.path() + "/key";
  std::ofstream(options.store.key_file) << std::string(32, 'a');
  EXPECT_EQ(AskAfresh(options).cache, v1::CACHE_TIER_COMPUTED);
  std::ofstream(options.store.key_file) << std::string(32, 'b');
  EXPECT_EQ(AskAfresh(options).cache, v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(AskAfresh(options).cache, v1::CACHE_TIER_STORE);  // which has been written over
}

TEST(LocalServerStoreTest, AStoreThatCannotBeIsNamed) {
  for (const char* store : {"disk", "redis:/x", "http://127.0.0.1"}) {
    LocalServerOptions options = StoreOptions();
    options.store.store = store;
    EXPECT_EQ(base::FieldOf(LocalServer::Start(options).status()), "embedding_store") << store;
  }
  LocalServerOptions options = StoreOptions();
  options.store.key_file = "no-such-file";
  EXPECT_THAT(std::string(LocalServer::Start(options).status().message()),
              HasSubstr("--embedding_store_key_file"));
}

TEST(LocalServerStoreTest, ATakenPortIsToldBeforeTheModelIsLoaded) {
  int port = 0;
  const testing::Fd taken = testing::Listen(port);
  const std::string address = absl::StrCat("127.0.0.1:", port);
  for (const bool http : {false, true}) {
    LocalServerOptions options = StoreOptions();
    options.vision.prepare_threads = -1;  // what loading would say
    (http ? options.http.address : options.grpc_address) = address;
    const absl::Status status = LocalServer::Start(options).status();
    EXPECT_EQ(base::ReasonOf(status), "ADDRESS_UNAVAILABLE") << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(http ? "--http_address" : "--grpc_address"));
  }
}

}  // namespace
}  // namespace tessera::tools
