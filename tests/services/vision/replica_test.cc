// What other processes ask of a vision replica: its load, and records that it has in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/error.h"
#include "common/base/json.h"
#include "tests/services/vision/vision_service_fixture.h"
#include "tests/support/log_lines.h"

namespace tessera::vision {
namespace {

class ReplicaTest : public VisionServiceTest {
 protected:
  absl::StatusOr<std::string> ReadRecord(const std::string& key, uint64_t& told) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    v1::GetRecordRequest request;
    request.set_key(key);
    const auto stream = stub_->GetRecord(&context, request);
    std::string bytes;
    v1::GetRecordResponse response;
    while (stream->Read(&response)) {
      if (bytes.empty()) told = response.record_bytes();
      EXPECT_LE(response.chunk().size(), size_t{1} << 20);
      bytes += response.chunk();
    }
    const grpc::Status status = stream->Finish();
    if (!status.ok()) return rpc::FromGrpc(status);
    return bytes;
  }

  store::RecordPtr LargeRecord() {
    auto record = std::make_shared<store::EmbeddingRecord>();
    record->key = store::EmbeddingKey(base::Sha256Of("large"));
    record->rows = 700;
    record->width = 2048;  // 2.7 MiB as f16
    record->data.assign(static_cast<size_t>(record->rows * record->width) * 2, std::byte{0x11});
    return record;
  }
};

TEST_F(ReplicaTest, ARecordInMemoryIsReadWholeAndSealed) {
  Start();
  const store::RecordPtr record = LargeRecord();
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  uint64_t told = 0;
  const absl::StatusOr<std::string> bytes = ReadRecord(std::string(record->key.bytes()), told);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(told, bytes->size());
  const auto decoded = store::RecordCodec().Decode(*bytes, {.key = record->key});
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->data, record->data);
}

TEST_F(ReplicaTest, AStoreThatIsSlowHoldsNoReaderUp) {
  Start();
  const store::RecordPtr record = LargeRecord();
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  std::promise<void> gate;
  ASSERT_TRUE(lookups_->TryPush([opened = gate.get_future().share()] { opened.wait(); }));
  uint64_t told = 0;
  EXPECT_TRUE(ReadRecord(std::string(record->key.bytes()), told).ok());
  gate.set_value();
}

TEST_F(ReplicaTest, ARecordThatIsGoneOrNoKeyIsAnError) {
  Start();
  uint64_t told = 0;
  const absl::Status gone = ReadRecord(std::string(32, 'k'), told).status();
  EXPECT_EQ(gone.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ReasonOf(gone), "RECORD_GONE");
  EXPECT_EQ(ReadRecord("short", told).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ReplicaTest, EveryReadIsOneLineOfTheLogWithTheCallersName) {
  Start();
  const store::RecordPtr record = LargeRecord();
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  ::testing::internal::CaptureStderr();
  const std::map<std::string, std::string> keys = {{"held", std::string(record->key.bytes())},
                                                   {"gone", std::string(32, 'k')}};
  for (const auto& [id, key] : keys) {
    grpc::ClientContext context;
    context.AddMetadata("x-request-id", id);
    context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    v1::GetRecordRequest request;
    request.set_key(key);
    const auto stream = stub_->GetRecord(&context, request);
    v1::GetRecordResponse response;
    while (stream->Read(&response)) {
    }
    stream->Finish();
  }
  server_->Shutdown(absl::InfiniteDuration());  // a line comes behind its answer
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  std::map<std::string, base::Json> by_id = testing::LinesById(log);
  ASSERT_EQ(by_id.size(), 2u) << log;
  for (auto& [id, line] : by_id) {
    EXPECT_EQ(line["service"], "vision");
    EXPECT_EQ(line["method"], "GetRecord");
    EXPECT_EQ(line["trace_id"], "0af7651916cd43dd8448eb211c80319c");
  }
  EXPECT_EQ(by_id["held"]["code"], "OK");
  EXPECT_GT(by_id["held"]["record_bytes"], 2 << 20);
  EXPECT_EQ(by_id["gone"]["reason"], "RECORD_GONE");
}

// A replica that ends waits for them.
TEST_F(ReplicaTest, WhoReadsIsACallUnderWayAndWhoWatchesIsNone) {
  Start();
  const store::RecordPtr record = LargeRecord();
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  grpc::ClientContext watching, reading;
  const auto watch = stub_->WatchLoad(&watching, {});
  v1::VisionServiceWatchLoadResponse load;
  ASSERT_TRUE(watch->Read(&load));
  EXPECT_TRUE(service_->AwaitCalls(clock_.Now()));
  v1::GetRecordRequest request;
  request.set_key(std::string(record->key.bytes()));
  const auto reader = stub_->GetRecord(&reading, request);
  v1::GetRecordResponse chunk;
  ASSERT_TRUE(reader->Read(&chunk));  // and does not read on
  EXPECT_FALSE(service_->AwaitCalls(clock_.Now()));
  while (reader->Read(&chunk)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(service_->AwaitCalls(absl::InfiniteFuture()));
  watching.TryCancel();
  watch->Finish();
}

// Each of them holds a record's bytes: there is a bound, and whoever leaves makes room.
TEST_F(ReplicaTest, ReadersBeyondTheBoundAreToldToComeAgain) {
  Start();
  const store::RecordPtr record = LargeRecord();
  ASSERT_TRUE(store_.Put(record, absl::ZeroDuration()).ok());
  const std::string key(record->key.bytes());
  {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GetRecordResponse>>> streams;
    v1::GetRecordRequest request;
    request.set_key(key);
    v1::GetRecordResponse first;
    int refused = 0;
    for (int i = 0; i < 40; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      streams.push_back(stub_->GetRecord(contexts.back().get(), request));
      if (streams.back()->Read(&first)) continue;  // and stops reading
      const absl::Status status = rpc::FromGrpc(streams.back()->Finish());
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_TRUE(base::RetryOf(status).has_value());
      streams.pop_back();
      contexts.pop_back();
      ++refused;
    }
    EXPECT_EQ(refused, 40 - 32);
    for (const auto& context : contexts) context->TryCancel();
    for (const auto& stream : streams) {
      while (stream->Read(&first)) {
      }
      stream->Finish();
    }
  }
  uint64_t told = 0;
  absl::StatusOr<std::string> bytes = absl::UnknownError("");
  while (!bytes.ok()) {  // the cancelled ones go within moments
    bytes = ReadRecord(key, told);
    ASSERT_TRUE(bytes.ok() || absl::IsResourceExhausted(bytes.status())) << bytes.status();
  }
}

TEST_F(ReplicaTest, ItsLoadIsToldAtOnceAndAgainUntilTheWatcherGoes) {
  Start();
  grpc::ClientContext context;
  v1::VisionServiceWatchLoadRequest request;
  request.set_interval_milliseconds(10);
  const auto stream = stub_->WatchLoad(&context, request);
  v1::VisionServiceWatchLoadResponse load;
  ASSERT_TRUE(stream->Read(&load));
  EXPECT_FALSE(load.draining());
  EXPECT_EQ(load.pending_images(), 0u);
  EXPECT_EQ(load.pending_limit(), 7u);
  std::atomic<bool> over{false};
  std::thread time([&] {
    while (!over.load()) {
      clock_.Advance(absl::Milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(stream->Read(&load));
  EXPECT_TRUE(pipeline_->Drain(clock_.Now()));
  while (!load.draining() && stream->Read(&load)) {
  }
  EXPECT_TRUE(load.draining());
  context.TryCancel();
  while (stream->Read(&load)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  over = true;
  time.join();
}

TEST_F(ReplicaTest, ADeviceThatFailsMakesItBroken) {
  tower_.status = absl::InternalError("no device");
  Start();
  for (const char colour : {'a', 'b', 'c'}) EXPECT_FALSE(Run(Bmp(3, colour)).status.ok());
  grpc::ClientContext context;
  const auto stream = stub_->WatchLoad(&context, {});
  v1::VisionServiceWatchLoadResponse load;
  ASSERT_TRUE(stream->Read(&load));
  EXPECT_TRUE(load.broken());
  context.TryCancel();
  stream->Finish();
}

TEST_F(ReplicaTest, ReferencesNameTheReplica) {
  Start();
  const Call call = Run(Bmp(1, '\x80'));
  ASSERT_TRUE(call.status.ok()) << call.status;
  EXPECT_EQ(call.plan->ref().origin(), "10.0.0.7:9100");
  EXPECT_EQ(call.ready->ref().origin(), "10.0.0.7:9100");
}

}  // namespace
}  // namespace tessera::vision
