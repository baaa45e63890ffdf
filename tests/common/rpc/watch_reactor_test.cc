#include "common/rpc/watch_reactor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "common/rpc/server.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tests/support/fake_clock.h"

namespace tessera::rpc {
namespace {

using Load = v1::DecodeServiceWatchLoadResponse;

class Service final : public v1::DecodeService::CallbackService {
 public:
  explicit Service(base::Clock& clock) : timers_(clock), clock_(clock) {}
  grpc::ServerWriteReactor<Load>* WatchLoad(
      grpc::CallbackServerContext*, const v1::DecodeServiceWatchLoadRequest* request) override {
    return WatchReactor<Load>::Start({timers_, clock_},
                                     WatchInterval(request->interval_milliseconds()),
                                     [this](Load& load) { load.set_running(++told_); });
  }

 private:
  base::Timers timers_;
  base::Clock& clock_;
  std::atomic<uint32_t> told_{0};
};

TEST(WatchReactorTest, AWatchEndsWellBeforeItsConnectionIsCut) {
  testing::FakeClock clock;
  Service service(clock);
  const auto server = Server::Start({}, {&service}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::DecodeService::NewStub((*server)->InProcessChannel());
  grpc::ClientContext context;
  v1::DecodeServiceWatchLoadRequest request;
  request.set_interval_milliseconds(10'000);
  const absl::Time start = clock.Now();
  const auto stream = stub->WatchLoad(&context, request);
  Load load;
  ASSERT_TRUE(stream->Read(&load));
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over.load()) {
      clock.Advance(absl::Seconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  uint32_t told = 1;
  while (stream->Read(&load)) EXPECT_EQ(load.running(), ++told);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_GE(clock.Now() - start, kWatchLife);
  EXPECT_LE(told, 1 + kWatchLife / absl::Seconds(10) + 1);
  over.store(true);
  time.join();
}

}  // namespace
}  // namespace tessera::rpc
