#include "services/decode/record_tiers.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/metrics/names.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "common/store/memory_store.h"
#include "tests/services/decode/engine/fake_engine.h"
#include "tests/support/fake_clock.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using testing::FakeKey;
using testing::FakeRecord;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Those of a log that have this word.
std::vector<std::string> Lines(const std::string& log, absl::string_view word) {
  return absl::StrSplit(log, '\n',
                        [word](absl::string_view line) { return absl::StrContains(line, word); });
}

// A vision replica with one record.
class ChunkedReplica final : public v1::VisionService::Service {
 public:
  explicit ChunkedReplica(std::string bytes) : bytes_(std::move(bytes)) {}
  grpc::Status GetRecord(grpc::ServerContext*, const v1::GetRecordRequest* request,
                         grpc::ServerWriter<v1::GetRecordResponse>* writer) override {
    ++asked;
    if (request->key() != std::string(FakeKey(1).bytes())) {
      return grpc::Status(grpc::StatusCode::NOT_FOUND, "gone");
    }
    v1::GetRecordResponse response;
    response.set_record_bytes(announced != 0 ? announced.load() : bytes_.size());
    for (size_t at = 0; at < bytes_.size(); at += chunk_bytes) {
      response.set_chunk(bytes_.substr(at, chunk_bytes));
      writer->Write(response);
      response.Clear();
    }
    return grpc::Status::OK;
  }
  std::atomic<int> asked{0};
  std::atomic<uint64_t> announced{0};  // 0: the truth
  size_t chunk_bytes = 50;

 private:
  const std::string bytes_;
};

class RecordTiersTest : public ::testing::Test {
 protected:
  explicit RecordTiersTest(
      std::string bytes = store::RecordCodec().Encode(*FakeRecord(1, 3)).value())
      : replica_(std::move(bytes)) {
    server_ = *rpc::Server::Start({}, {&replica_}, {});
    origin_ = std::make_unique<OriginClient>(
        OriginOptions{.addresses = {"vision-0:9100", "*:9101"},
                      .timeout = absl::Minutes(5),
                      .max_record_bytes = 10'000},
        [this](const std::string& address) {
          connected_ += address + " ";
          return server_->InProcessChannel();
        },
        store::RecordCodec(), base::RealClock());
  }

  metrics::Metrics metrics_{"m"};
  store::MemoryStore local_{1 << 20, metrics_};
  testing::FakeStore shared_store_;
  store::TieredStore shared_{local_, shared_store_, {}, metrics_};
  ChunkedReplica replica_;
  std::unique_ptr<rpc::Server> server_;
  std::string connected_;
  testing::FakeClock clock_;
  std::unique_ptr<OriginClient> origin_;
};

TEST_F(RecordTiersTest, MemoryThenTheStoreThenTheOriginAreAsked) {
  const RecordReader read = MakeRecordReader({local_, &shared_, origin_.get(), metrics_});
  ASSERT_TRUE(local_.Put(FakeRecord(5, 1), absl::ZeroDuration()).ok());
  ASSERT_TRUE(shared_store_.Put(FakeRecord(6, 2), absl::ZeroDuration()).ok());
  EXPECT_EQ(read({FakeKey(5), "vision-0:9100"}).tier, RowTier::kLocal);
  EXPECT_EQ(read({FakeKey(6), "vision-0:9100"}).tier, RowTier::kStore);
  EXPECT_EQ(read({FakeKey(6), ""}).tier, RowTier::kLocal);  // kept
  EXPECT_EQ(replica_.asked.load(), 0);
  const ReadRecord made = read({FakeKey(1), "vision-0:9100"});
  EXPECT_EQ(made.tier, RowTier::kOrigin);
  ASSERT_NE(made.record, nullptr);
  EXPECT_EQ(made.record->rows, 3);
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).tier, RowTier::kLocal);
  EXPECT_EQ(replica_.asked.load(), 1);
  ASSERT_TRUE(shared_.Flush(absl::Seconds(30)));
  EXPECT_TRUE(shared_store_.Get(FakeKey(1))->has_value());  // and shared with others
}

TEST_F(RecordTiersTest, WithoutASharedStoreTheOriginComesBehindMemory) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).tier, RowTier::kOrigin);
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).tier, RowTier::kLocal);
  EXPECT_EQ(read({FakeKey(2), "vision-0:9100"}).record, nullptr);  // it has not
}

// It has the right key, and is none of ours.
TEST_F(RecordTiersTest, ARecordOfAnotherShapeIsAMissInEveryTier) {
  const RecordReader read = MakeRecordReader({local_, &shared_, origin_.get(), metrics_});
  ASSERT_TRUE(shared_store_.Put(FakeRecord(1, 3, 8), absl::ZeroDuration()).ok());
  const int64_t width = FakeRecord(1, 3)->width;
  ASSERT_NE(width, 8);
  const ReadRecord made = read({FakeKey(1), "vision-0:9100", 3, width});
  ASSERT_NE(made.record, nullptr);
  EXPECT_EQ(made.tier, RowTier::kOrigin);
  EXPECT_EQ(made.record->width, width);
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100", 3, width}).tier, RowTier::kLocal) << "replaced";
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100", 4, width}).record, nullptr) << "nor the origin's";
  const auto rejected = [this](const char* tier) {
    return metrics_.GetCounter(metrics::kEmbeddingCacheLookups, {tier, "rejected"}).value();
  };
  EXPECT_EQ(rejected("store"), 2);
  EXPECT_EQ(rejected("origin"), 1);
}

// A reference may name any address: only ours are called.
TEST_F(RecordTiersTest, AnOriginThatIsNotOneOfOursIsNeverCalled) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  for (const std::string origin : {"", "evil:9100", "vision-0:9101x", "vision-0:91000", ":"}) {
    EXPECT_EQ(read({FakeKey(1), origin}).record, nullptr) << origin;
  }
  EXPECT_EQ(connected_, "");
  EXPECT_EQ(read({FakeKey(1), "10.1.2.3:9101"}).tier, RowTier::kOrigin);
  EXPECT_EQ(connected_, "10.1.2.3:9101 ");
}

TEST_F(RecordTiersTest, ChannelsToReplicasThatHaveGoneAreForgotten) {
  std::vector<std::weak_ptr<grpc::Channel>> channels;
  OriginClient origin(
      {.addresses = {"*:9101"}, .timeout = absl::Minutes(5), .max_origins = 2},
      [&](const std::string&) {
        auto channel = server_->InProcessChannel();
        channels.push_back(channel);
        return channel;
      },
      store::RecordCodec(), clock_);
  for (const char* address : {"a:9101", "b:9101", "a:9101", "c:9101", "a:9101"}) {
    EXPECT_TRUE(origin.Get(address, FakeKey(1)).ok()) << address;
    clock_.Advance(absl::Seconds(1));
  }
  ASSERT_EQ(channels.size(), 3u);
  EXPECT_FALSE(channels[0].expired());
  EXPECT_TRUE(channels[1].expired()) << "asked longest ago";
  EXPECT_FALSE(channels[2].expired());
}

// It may be a replica whose --origin and our --vision_origins differ: the operator must see that.
TEST_F(RecordTiersTest, AnUnknownOriginIsToldOnceAndAKnownOneNever) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  const auto lines = [&read](const std::string& origin, int reads) {
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < reads; ++i) read({FakeKey(2), origin});
    return Lines(::testing::internal::GetCapturedStderr(), "--vision_origins");
  };
  EXPECT_THAT(lines("", 1), IsEmpty());
  EXPECT_THAT(lines("vision-0:9100", 1), IsEmpty());
  EXPECT_THAT(lines("0.0.0.0:9100", 3), ElementsAre(HasSubstr("0.0.0.0:9100")));
  EXPECT_THAT(lines("0.0.0.0:9100", 1), IsEmpty());
  EXPECT_THAT(lines("vision-1:9100", 1), ElementsAre(HasSubstr("vision-1:9100")));
}

TEST_F(RecordTiersTest, UnknownOriginsDoNotFloodTheLog) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) read({FakeKey(2), absl::StrCat("evil-", i, ":1")});
  EXPECT_THAT(Lines(::testing::internal::GetCapturedStderr(), "--vision_origins"), SizeIs(32));
}

TEST_F(RecordTiersTest, ARecordBeyondTheBoundIsNotRead) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  replica_.announced = 10'001;
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).record, nullptr);
  replica_.announced = 1;  // it sends more than it said: what counts is what comes
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).tier, RowTier::kOrigin);
}

// FAULTS B070: larger than any default limit of a message.
TEST(LargeOriginTest, TheRowsOfALargePictureComeOverTheWire) {
  const store::RecordPtr record = FakeRecord(1, 2880, 4096);
  ChunkedReplica replica(store::RecordCodec().Encode(*record).value());
  replica.chunk_bytes = 1 << 20;
  const auto server = *rpc::Server::Start({.address = "127.0.0.1:0"}, {&replica}, {});
  const std::string address = absl::StrCat("127.0.0.1:", server->port());
  OriginClient origin(
      {.addresses = {address}, .timeout = absl::Minutes(5)},
      [](const std::string& name) {
        auto channel = rpc::Connect(name);
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(5));
        return channel;
      },
      store::RecordCodec(), base::RealClock());
  const auto read = origin.Get(address, FakeKey(1));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->rows, 2880);
  EXPECT_EQ((*read)->data, record->data);
}

TEST_F(RecordTiersTest, AnOriginThatIsGoneIsAMiss) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  server_->Shutdown(absl::ZeroDuration());
  OriginClient nobody(
      {.addresses = {"127.0.0.1:1"}},
      [](const std::string& address) {
        return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
      },
      store::RecordCodec(), base::RealClock());
  EXPECT_EQ(
      MakeRecordReader({local_, nullptr, &nobody, metrics_})({FakeKey(1), "127.0.0.1:1"}).record,
      nullptr);
}

// What the replica sends is checked like what any store has.
class LyingOriginTest : public RecordTiersTest {
 protected:
  LyingOriginTest() : RecordTiersTest(store::RecordCodec().Encode(*FakeRecord(2, 3)).value()) {}
};

TEST_F(LyingOriginTest, ARecordOfAnotherPictureIsRefused) {
  const RecordReader read = MakeRecordReader({local_, nullptr, origin_.get(), metrics_});
  EXPECT_EQ(read({FakeKey(1), "vision-0:9100"}).record, nullptr);
  EXPECT_EQ(metrics_.GetCounter(metrics::kEmbeddingCacheLookups, {"origin", "rejected"}).value(),
            1);
}

}  // namespace
}  // namespace tessera::decode
