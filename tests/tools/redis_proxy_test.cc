// Whole requests while everything goes wrong between decode and Redis: no request fails for it, and
// no answer is another's.
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/names.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/store/set/store_set.h"
#include "services/decode/decode_runtime.h"
#include "services/decode/origin_client.h"
#include "services/decode/record_tiers.h"
#include "services/gateway/gateway_runtime.h"
#include "services/vision/vision_runtime.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/fault_proxy.h"
#include "tests/support/redis_server.h"

namespace tessera::tools {
namespace {

using testing::FaultProxy;
using testing::RedisServer;

constexpr char kModel[] = "tests/goldens/models/llava15-gqa";
constexpr int kPictures = 50;
constexpr int kThreads = 8;
#ifdef TESSERA_SANITIZED
constexpr int kRequests = 2000;
#else
constexpr int kRequests = 10'000;
#endif

// 16 x 16 pixels of BMP, random by `number`. `name` changes the file, not the pixels: it lies in
// bytes that nobody reads.
std::string Bmp(int number, uint32_t name) {
  constexpr uint32_t kSide = 16, kHeader = 54;
  std::string file = "BM";
  const auto u32 = [&](uint32_t value) {
    for (int i = 0; i < 4; ++i) file += static_cast<char>(value >> (8 * i));
  };
  u32(kHeader + kSide * kSide * 3);
  u32(name);
  u32(kHeader);
  u32(40);
  u32(kSide);
  u32(kSide);
  u32(1 | 24 << 16);  // planes, bits of a pixel
  for (int i = 0; i < 6; ++i) u32(0);
  std::mt19937 random(static_cast<uint32_t>(number));
  for (uint32_t i = 0; i < kSide * kSide * 3; ++i) file += static_cast<char>(random());
  return file;
}

store::StoreSetOptions StoreAt(int port, size_t memory_bytes) {
  store::StoreSetOptions options;
  options.store = absl::StrCat("redis://127.0.0.1:", port);
  options.memory_bytes = memory_bytes;
  options.redis.min_backoff = absl::Milliseconds(1);
  options.redis.max_backoff = absl::Milliseconds(20);
  return options;
}

// The three services, each with what it has in a process of its own; decode's Redis is behind the
// proxy. Its prefix cache and its memory hold a few pictures of the fifty.
class Services {
 public:
  Services(int redis_port, int proxy_port)
      : vision_stores_(*store::StoreSet::Create(StoreAt(redis_port, 4 << 20), vision_metrics_)),
        decode_stores_(*store::StoreSet::Create(StoreAt(proxy_port, 16 << 10), decode_metrics_)) {
    vision::VisionOptions vision;
    vision.model_dir = kModel;
    vision.quality_gate = false;
    vision.origin = "vision:1";
    vision_ = vision::VisionRuntime::Create(vision, pool_, vision::VisionStores(*vision_stores_),
                                            base::RealClock(), vision_metrics_)
                  .value();
    vision_server_ = rpc::Server::Start({}, {vision_->service()}, {}).value();
    origin_ = std::make_unique<decode::OriginClient>(
        decode::OriginOptions{.addresses = {vision.origin}},
        [this](const std::string&) { return vision_server_->InProcessChannel(); },
        store::RecordCodec(), base::RealClock());
    decode::DecodeOptions decode;
    decode.model_dir = kModel;
    decode.kv_cache_bytes.bytes = 512 << 10;
    decode.prefix_cache_bytes = 64 << 10;
    decode_ = decode::DecodeRuntime::Create(
                  decode, pool_,
                  decode::MakeRecordReader({decode_stores_->local(), decode_stores_->shared(),
                                            origin_.get(), decode_metrics_}),
                  base::RealClock(), decode_metrics_)
                  .value();
    decode_server_ = rpc::Server::Start({}, {decode_->service()}, {}).value();
    gateway::GatewayOptions gateway;
    gateway.model_name = "m";
    gateway.handle_key = "0123456789abcdef";
    gateway_ = gateway::GatewayRuntime::Create(
                   gateway,
                   gateway::GatewayPeers::Local(vision_server_->InProcessChannel(),
                                                decode_server_->InProcessChannel()),
                   base::RealClock(), gateway_metrics_)
                   .value();
    gateway_server_ = rpc::Server::Start({}, {gateway_->service()}, {}).value();
  }

  ~Services() {
    gateway_->Drain(absl::Seconds(60));
    for (auto* server : {&gateway_server_, &vision_server_, &decode_server_}) {
      (*server)->Shutdown(absl::Seconds(60));
    }
  }

  std::shared_ptr<grpc::Channel> Channel() { return gateway_server_->InProcessChannel(); }
  // Of decode.
  double Lookups(const std::string& tier, const std::string& result) {
    return decode_metrics_.GetCounter(metrics::kEmbeddingCacheLookups, {tier, result}).value();
  }

 private:
  base::ComputePool pool_{1};
  metrics::Metrics vision_metrics_{"m"}, decode_metrics_{"m"}, gateway_metrics_{"m"};
  std::unique_ptr<store::StoreSet> vision_stores_, decode_stores_;
  std::unique_ptr<vision::VisionRuntime> vision_;
  std::unique_ptr<rpc::Server> vision_server_;
  std::unique_ptr<decode::OriginClient> origin_;
  std::unique_ptr<decode::DecodeRuntime> decode_;
  std::unique_ptr<rpc::Server> decode_server_;
  std::unique_ptr<gateway::GatewayRuntime> gateway_;
  std::unique_ptr<rpc::Server> gateway_server_;
};

struct Question {
  std::vector<int> pictures;
  std::string text;
};

// Each picture with two questions, and with its neighbour.
std::vector<Question> Questions() {
  std::vector<Question> questions;
  for (int i = 0; i < kPictures; ++i) {
    questions.push_back({{i}, "What is it?"});
    questions.push_back({{i}, "How many are there?"});
    questions.push_back({{i, (i + 1) % kPictures}, "Which is larger?"});
  }
  return questions;
}

// The text, or the error. `name`: of the pictures' files.
std::string Ask(v1::GatewayService::Stub& stub, const Question& question, uint32_t name) {
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  for (const int picture : question.pictures) {
    message.add_parts()->mutable_image()->mutable_inline_data()->set_data(Bmp(picture, name));
  }
  message.add_parts()->set_text(question.text);
  request.mutable_options()->set_max_tokens(6);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = stub.Generate(&context, request, &response);
  return status.ok() ? response.text() : rpc::FromGrpc(status).ToString();
}

TEST(RedisProxyTest, MixedRequestsOverABrokenWireHaveTheTextOfQuietOnes) {
  RedisServer redis;
  redis.Start();
  FaultProxy proxy(redis.port(), 6);
  Services services(redis.port(), proxy.port());
  const auto stub = v1::GatewayService::NewStub(services.Channel());
  const std::vector<Question> questions = Questions();
  std::vector<std::string> quiet;
  for (const Question& question : questions) quiet.push_back(Ask(*stub, question, 0));
  ASSERT_GT(std::set<std::string>(quiet.begin(), quiet.end()).size(), 30u)
      << "answers that are all alike show nothing: " << quiet[0];

  proxy.Set({.cut = 0.005, .truncate = 0.005, .flip = 0.02, .reorder = 0.005, .delay = 0.02});
  std::atomic<int> left = kRequests;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(static_cast<uint32_t>(thread));
      for (int number = left.fetch_sub(1); number > 0; number = left.fetch_sub(1)) {
        const size_t which = random() % questions.size();
        const bool fresh = random() % 10 == 0;
        const std::string text =
            Ask(*stub, questions[which], fresh ? static_cast<uint32_t>(number) : 0);
        if (text == quiet[which]) continue;
        if (wrong.fetch_add(1) < 5) ADD_FAILURE() << "'" << text << "', not " << quiet[which];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double hits = services.Lookups("store", "hit");
  const double rejected = services.Lookups("store", "rejected");
  const double errors = services.Lookups("store", "error");
  std::cout << kRequests << " requests, " << proxy.faults()
            << " faults; decode's reads of Redis: " << hits << " hits, " << rejected
            << " rejected, " << errors << " errors; " << services.Lookups("origin", "hit")
            << " from vision\n";
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(proxy.faults(), kRequests / 50);
  EXPECT_GT(hits, kRequests / 50);
  EXPECT_GT(rejected, kRequests / 500);
  EXPECT_GT(errors, kRequests / 500);
}

}  // namespace
}  // namespace tessera::tools
