// Many clients at once that come, go and change their minds, against the three services: nothing is
// lost, nothing leaks, and the process is as large afterwards as before.

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/json.h"
#include "common/base/mutex.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

constexpr char kModel[] = "tests/goldens/models/llava15-gqa";
#ifdef TESSERA_SANITIZED
constexpr int kRequests = 320;
constexpr int kSoakRequests = 0;  // sanitizers keep freed memory
#else
constexpr int kRequests = 2000;
constexpr int kSoakRequests = 10000;
#endif

std::vector<std::string> Pictures() {
  std::vector<std::string> pictures;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(kModel) + "/inputs")) {
    pictures.push_back(base::ReadFile(entry.path().string()).value());
  }
  return pictures;
}

LocalServerOptions SmallServer() {
  LocalServerOptions options;
  options.model_dir = kModel;
  options.reflection = false;
  options.vision.quality_gate = false;
  options.decode.kv_cache_bytes.bytes = 512 << 10;  // too small for all: preemption and eviction
  options.store.memory_bytes = 256 << 10;
  options.gateway.max_requests = 64;
  return options;
}

int64_t ResidentBytes() {
  malloc_trim(0);  // what is free, and only kept for later, is not the server's need
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * 4096;
}

// Clients over one channel that ask at random.
class Crowd {
 public:
  explicit Crowd(LocalServer& server)
      : stub_(v1::GatewayService::NewStub(server.Channel())), pictures_(Pictures()) {}

  void Run(int clients, int requests, bool fickle) {
    std::atomic<int> left{requests};
    std::vector<std::thread> threads;
    for (int client = 0; client < clients; ++client) {
      threads.emplace_back([&, client] {
        std::mt19937 random(static_cast<uint32_t>(client + 100 * rounds_));
        while (left.fetch_sub(1) > 0) Ask(random, fickle);
      });
    }
    for (std::thread& thread : threads) thread.join();
    ++rounds_;
  }

  int answered() const { return answered_; }
  int cancelled() const { return cancelled_; }
  int refused() const { return refused_; }

 private:
  void Ask(std::mt19937& random, bool fickle) {
    v1::GenerateStreamRequest stream;
    v1::GenerateRequest& request = *stream.mutable_request();
    v1::Message& message = *request.add_messages();
    message.set_role("user");
    if (random() % 4 != 0) {
      message.add_parts()->mutable_image()->mutable_inline_data()->set_data(
          pictures_[random() % pictures_.size()]);
    }
    message.add_parts()->set_text("What is " + std::to_string(random() % 40) + "?");
    request.mutable_options()->set_max_tokens(1 + random() % 24);
    if (random() % 3 == 0) request.mutable_options()->set_temperature(1);
    if (random() % 5 == 0) request.mutable_options()->set_presence_penalty(1);
    if (random() % 5 == 0) request.mutable_options()->set_top_logprobs(3);
    grpc::ClientContext context;
    const int leave_after = fickle && random() % 3 == 0 ? static_cast<int>(random() % 4) : -1;
    if (fickle && random() % 6 == 0) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::microseconds(random() % 20000));
    }
    const auto reader = stub_->GenerateStream(&context, stream);
    v1::GenerateStreamResponse response;
    bool ended = false;
    for (int read = 0; read != leave_after && reader->Read(&response); ++read) {
      ended = ended || response.has_end();
    }
    if (leave_after >= 0) context.TryCancel();
    while (reader->Read(&response)) ended = ended || response.has_end();
    Count(reader->Finish(), ended);
  }

  void Count(const grpc::Status& status, bool ended) {
    switch (status.error_code()) {
      case grpc::StatusCode::OK:
        EXPECT_TRUE(ended);
        ++answered_;
        return;
      case grpc::StatusCode::CANCELLED:
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        ++cancelled_;
        return;
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        ++refused_;
        return;
      default:
        ADD_FAILURE() << status.error_code() << ": " << status.error_message();
    }
  }

  const std::unique_ptr<v1::GatewayService::Stub> stub_;
  const std::vector<std::string> pictures_;
  uint32_t rounds_ = 0;
  std::atomic<int> answered_{0}, cancelled_{0}, refused_{0};
};

// All requests have left the decoder, though their clients may know it first.
void ExpectNothingLeft(LocalServer& server) {
  decode::EngineStats stats = server.decode().stats();
  for (int i = 0; i < 6000 && stats.running + stats.waiting > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stats = server.decode().stats();
  }
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.blocks_used, 0);
  EXPECT_EQ(stats.finished_error, 0);
}

TEST(MixedLoadTest, ThirtyTwoClientsComeAndGoAndNothingIsLeft) {
  const auto server = LocalServer::Start(SmallServer()).value();
  Crowd crowd(*server);
  crowd.Run(32, kRequests, /*fickle=*/true);
  ExpectNothingLeft(*server);
  EXPECT_GT(crowd.answered(), kRequests / 4);
  EXPECT_GT(crowd.cancelled(), 0);
  EXPECT_EQ(crowd.answered() + crowd.cancelled() + crowd.refused(), kRequests);
}

// A leak makes every ten thousand requests cost the same; a heap that is still finding its size
// comes to rest. So: within three rounds one must leave the process as it was, within 2 %.
TEST(MixedLoadTest, TheProcessIsAsLargeAfterTenThousandRequestsAsBefore) {
  if (kSoakRequests == 0) return;  // see above
  mallopt(M_ARENA_MAX, 2);         // else each of many threads leaves free pages in its own
  const auto server = LocalServer::Start(SmallServer()).value();
  Crowd crowd(*server);
  crowd.Run(8, kSoakRequests, /*fickle=*/true);
  ExpectNothingLeft(*server);
  bool flat = false;
  for (int round = 0; round < 3 && !flat; ++round) {
    const int64_t before = ResidentBytes();
    crowd.Run(8, kSoakRequests, /*fickle=*/true);
    ExpectNothingLeft(*server);
    const int64_t after = ResidentBytes();
    flat = static_cast<double>(after) <= 1.02 * static_cast<double>(before);
    std::printf("round %d: resident %.1f MB before, %.1f MB after\n", round,
                static_cast<double>(before) / 1e6, static_cast<double>(after) / 1e6);
  }
  EXPECT_TRUE(flat) << "the process has grown by more than 2 % in each round";
}

}  // namespace
}  // namespace tessera::tools
