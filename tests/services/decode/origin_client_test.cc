#include "services/decode/origin_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "tests/services/decode/engine/fake_engine.h"
#include "tests/support/fake_clock.h"

namespace tessera::decode {
namespace {

using testing::FakeKey;
using testing::FakeRecord;

constexpr char kName[] = "vision-0:9100";
constexpr char kTraceparent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// A vision replica that has one record, and may be stopped.
class Replica final : public v1::VisionService::Service {
 public:
  grpc::Status GetRecord(grpc::ServerContext* context, const v1::GetRecordRequest*,
                         grpc::ServerWriter<v1::GetRecordResponse>* writer) override {
    {
      base::MutexLock lock(mutex_);
      for (const auto& [key, value] : context->client_metadata()) {
        metadata_[std::string(key.data(), key.size())] = std::string(value.data(), value.size());
      }
      deadline_ = absl::FromChrono(context->deadline());
    }
    ++asked;
    while (stopped && !context->IsCancelled()) std::this_thread::yield();
    v1::GetRecordResponse response;
    response.set_record_bytes(bytes_.size());
    response.set_chunk(bytes_);
    writer->Write(response);
    return grpc::Status::OK;
  }
  std::string Metadata(const std::string& key) {
    base::MutexLock lock(mutex_);
    return metadata_[key];
  }
  absl::Time deadline() {
    base::MutexLock lock(mutex_);
    return deadline_;
  }

  std::atomic<int> asked{0};
  std::atomic<bool> stopped{false};

 private:
  const std::string bytes_ = store::RecordCodec().Encode(*FakeRecord(1, 3)).value();
  base::Mutex mutex_;
  absl::flat_hash_map<std::string, std::string> metadata_ ABSL_GUARDED_BY(mutex_);
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_);  // by the system's clock
};

// gRPC's time-outs run by the system's clock, how long an origin is left alone by the fake one.
class OriginClientTest : public ::testing::Test {
 protected:
  void Start(absl::Duration timeout) {
    server_ = *rpc::Server::Start({}, {&replica_}, {});
    origin_ = std::make_unique<OriginClient>(
        OriginOptions{.addresses = {kName}, .timeout = timeout, .rest = absl::Seconds(1)},
        [this](const std::string&) { return server_->InProcessChannel(); }, store::RecordCodec(),
        clock_);
  }
  ~OriginClientTest() override {
    replica_.stopped = false;
    if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  }

  absl::Status Get(const ReadContext& asker = {}) {
    return origin_->Get(kName, FakeKey(1), asker).status();
  }
  static bool LeftAlone(const absl::Status& status) {
    return base::ReasonOf(status) == "ORIGIN_SILENT" && absl::IsUnavailable(status);
  }

  testing::FakeClock clock_;
  Replica replica_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<OriginClient> origin_;
};

TEST_F(OriginClientTest, TheRequestGoesWithTheRead) {
  Start(absl::Minutes(50));
  ReadContext asker;
  asker.name = {"id-1", kTraceparent};
  asker.deadline = clock_.Now() + absl::Minutes(10);
  ASSERT_TRUE(Get(asker).ok());
  EXPECT_EQ(replica_.Metadata("x-request-id"), "id-1");
  EXPECT_EQ(replica_.Metadata("traceparent"), kTraceparent);
  const auto in_30_minutes = absl::FromChrono(std::chrono::system_clock::now()) + absl::Minutes(30);
  EXPECT_LT(replica_.deadline(), in_30_minutes);
  asker.deadline = clock_.Now() + absl::Hours(10);
  ASSERT_TRUE(Get(asker).ok());
  EXPECT_GT(replica_.deadline(), in_30_minutes);
  EXPECT_LT(replica_.deadline(), in_30_minutes + absl::Hours(1));
}

TEST_F(OriginClientTest, ASilentOriginCostsOneTimeOutAndIsThenLeftAlone) {
  Start(absl::Milliseconds(20));
  replica_.stopped = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get()));
  for (int picture = 1; picture < 16; ++picture) EXPECT_TRUE(LeftAlone(Get()));
  clock_.Advance(absl::Milliseconds(999));
  EXPECT_TRUE(LeftAlone(Get()));
  clock_.Advance(absl::Milliseconds(1));
  // Nor does it cost others more than they have.
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get({.deadline = clock_.Now() + absl::Milliseconds(10)})));
  EXPECT_TRUE(LeftAlone(Get()));
}

TEST_F(OriginClientTest, ASilentOriginIsAskedByOneCallAtATimeUntilItAnswers) {
  Start(absl::Milliseconds(20));
  replica_.stopped = true;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Get()));
  clock_.Advance(absl::Seconds(1));
  std::stop_source ended;
  ended.request_stop();
  const absl::Status left = Get({.ended = ended.get_token()});  // or its time was over before that
  EXPECT_TRUE(absl::IsCancelled(left) || absl::IsDeadlineExceeded(left)) << left;
  EXPECT_TRUE(LeftAlone(Get()));  // that one has its time, whatever became of it
  replica_.stopped = false;
  while (!Get().ok()) clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(LeftAlone(Get()));
}

TEST_F(OriginClientTest, AReadEndsWithItsRequest) {
  Start(absl::Minutes(50));
  replica_.stopped = true;
  std::stop_source ended;
  absl::Status status;
  std::thread reader([&] { status = Get({.ended = ended.get_token()}); });
  while (replica_.asked == 0) std::this_thread::yield();
  ended.request_stop();
  reader.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsCancelled(Get({.ended = ended.get_token()})));
  // Neither this nor a deadline that leaves no time says that the origin is silent.
  for (int i = 0; i < 2; ++i) {
    const absl::Time soon = clock_.Now() + absl::Milliseconds(20);
    EXPECT_TRUE(absl::IsDeadlineExceeded(Get({.deadline = soon})));
  }
  replica_.stopped = false;
  EXPECT_TRUE(Get().ok());
}

}  // namespace
}  // namespace tessera::decode
