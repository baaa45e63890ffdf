#include "services/vision/vision_runtime.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "common/store/memory_store.h"
#include "tessera/v1/vision.grpc.pb.h"
#include "tests/services/vision/encoder/fakes.h"
#include "tests/support/golden_case.h"
#include "tests/support/tiny_models.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

// Holds whoever asks first until its gate is open. Nothing is in it.
class SlowStore final : public store::EmbeddingStore {
 public:
  absl::StatusOr<std::optional<store::RecordPtr>> Get(const store::EmbeddingKey&,
                                                      int64_t) override {
    if (first_.exchange(false)) gate.Pass();
    return std::nullopt;
  }
  absl::Status Put(store::RecordPtr, absl::Duration) override { return absl::OkStatus(); }

  Gate gate;

 private:
  std::atomic<bool> first_{true};
};

class VisionRuntimeTest : public ::testing::Test {
 protected:
  ~VisionRuntimeTest() override {
    if (server_) server_->Shutdown(absl::ZeroDuration());
  }

  void Start(VisionOptions options) { Start(options, store_); }
  void Start(const VisionOptions& options, store::EmbeddingStore& store) {
    runtime_ = VisionRuntime::Create(options, pool_, store, base::RealClock(), metrics_).value();
    server_ = *rpc::Server::Start({}, {runtime_->service()}, {});
    stub_ = v1::VisionService::NewStub(server_->InProcessChannel());
  }

  // Writes one to `dir`, and takes any picture.
  void StartTinyModel(const std::string& dir) {
    testing::WriteTinyModel(dir, {});
    VisionOptions options;
    options.model_dir = dir;
    options.quality_gate = false;
    Start(options);
  }

  using Stream = grpc::ClientReaderWriter<v1::EncodeRequest, v1::EncodeResponse>;

  std::unique_ptr<Stream> Offer(grpc::ClientContext& context, const std::string& bytes) {
    auto stream = stub_->Encode(&context);
    v1::EncodeRequest request;
    const base::Sha256Digest digest = base::Sha256Of(bytes);
    request.mutable_offer()->set_digest(std::string(digest.begin(), digest.end()));
    request.mutable_offer()->set_size_bytes(bytes.size());
    stream->Write(request);
    return stream;
  }

  // The last answer of the call.
  absl::StatusOr<v1::EncodeReady> Encode(const std::string& bytes) {
    grpc::ClientContext context;
    const auto stream = Offer(context, bytes);
    v1::EncodeRequest request;
    v1::EncodeResponse response;
    while (stream->Read(&response)) {
      if (response.has_ready()) stream->WritesDone();
      if (!response.has_need_bytes()) continue;
      request.set_chunk(bytes);
      stream->Write(request);
    }
    const absl::Status status = rpc::FromGrpc(stream->Finish());
    if (!status.ok()) return status;
    return response.ready();
  }

  base::ComputePool pool_{2};
  metrics::Metrics metrics_{"test"};
  store::MemoryStore store_{64 << 20, metrics_};
  std::unique_ptr<VisionRuntime> runtime_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::VisionService::Stub> stub_;
};

TEST_F(VisionRuntimeTest, TheRecordOfAPictureHoldsTheRowsOfTheReference) {
  const auto models = testing::FindGoldenModels().value();
  const auto shelf = std::find_if(models.begin(), models.end(),
                                  [](const auto& model) { return model.name == "shelf-vqa"; });
  ASSERT_NE(shelf, models.end());
  VisionOptions options;
  options.model_dir = shelf->dir;
  options.embedding_dtype = DType::kF32;
  Start(options);
  EXPECT_EQ(runtime_->info().rows_per_image, 256);
  EXPECT_EQ(runtime_->info().width, 256);
  EXPECT_GT(runtime_->info().memory.weights, 1u << 20);
  EXPECT_THAT(runtime_->info().fingerprint, ::testing::SizeIs(64));

  const std::string bytes = base::ReadFile(shelf->dir + "/inputs/plain.png").value();
  const auto ready = Encode(bytes);
  ASSERT_TRUE(ready.ok()) << ready.status();
  EXPECT_EQ(ready->cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(ready->ref().rows(), 256u);
  EXPECT_EQ(ready->ref().grid_height(), 16u);
  EXPECT_EQ(ready->ref().quality().verdict(), v1::QUALITY_VERDICT_PASS);
  EXPECT_GT(ready->stages().encode_seconds(), 0);
  const auto record = store_.Get(store::EmbeddingKey::FromBytes(ready->ref().key()).value());
  ASSERT_TRUE(record.ok() && record->has_value());
  const std::vector<float> golden = ToFloats(*shelf->Find(shelf->cases[0], "image_rows"));
  EXPECT_LE(testing::LargestDifference(ToFloats((**record)->view()), golden),
            1e-4 * testing::StandardDeviation(golden));
  EXPECT_EQ(Encode(bytes)->cache(), v1::CACHE_TIER_LOCAL);
}

TEST_F(VisionRuntimeTest, AnotherRecordTypeIsAnotherKeyAndFingerprint) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  const std::string bytes = base::ReadFile("models/shelf-vqa/inputs/plain.png").value();
  std::set<std::string> keys, fingerprints;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kI8}) {
    VisionOptions options;
    options.model_dir = dir.path();
    options.embedding_dtype = dtype;
    options.quality_gate = false;
    if (server_) server_->Shutdown(absl::ZeroDuration());
    Start(options);
    keys.insert(Encode(bytes).value().ref().key());
    fingerprints.insert(runtime_->info().fingerprint);
  }
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_EQ(fingerprints.size(), 3u);
}

TEST_F(VisionRuntimeTest, BadOptionsAndModelsAreRefusedByName) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  VisionOptions good;
  good.model_dir = dir.path();
  const auto refusal = [this](const VisionOptions& options) {
    const auto runtime = VisionRuntime::Create(options, pool_, store_, base::RealClock(), metrics_);
    EXPECT_FALSE(runtime.ok());
    return std::string(runtime.status().message());
  };
  VisionOptions bad = good;
  bad.embedding_dtype = DType::kBF16;
  EXPECT_THAT(refusal(bad), HasSubstr("embedding_dtype"));
  bad = good;
  bad.prepare_threads = 0;
  EXPECT_THAT(refusal(bad), HasSubstr("prepare_threads"));
  bad = good;
  bad.device = "abacus";
  EXPECT_THAT(refusal(bad), HasSubstr("abacus"));
  bad = good;
  bad.model_dir = dir.path() + "/nowhere";
  EXPECT_THAT(refusal(bad), HasSubstr("nowhere"));
}

TEST_F(VisionRuntimeTest, AnOfferThatWaitsForTheStoreHoldsNoOtherUp) {
  TempDir dir;
  testing::WriteTinyModel(dir.path(), {});
  VisionOptions options;
  options.model_dir = dir.path();
  SlowStore slow;
  Start(options, slow);
  grpc::ClientContext waiting, quick;
  quick.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const auto first = Offer(waiting, "one");
  slow.gate.AwaitArrivals(1);
  const auto second = Offer(quick, "two");
  v1::EncodeResponse response;
  EXPECT_TRUE(second->Read(&response) && response.has_need_bytes());
  slow.gate.Open();
  for (grpc::ClientContext* context : {&waiting, &quick}) context->TryCancel();
  for (Stream* stream : {first.get(), second.get()}) stream->Finish();
  server_->Shutdown(absl::ZeroDuration());
  runtime_.reset();  // before the store
}

TEST_F(VisionRuntimeTest, DrainedMeansNoNewPictures) {
  TempDir dir;
  StartTinyModel(dir.path());
  const std::string known = base::ReadFile("models/shelf-vqa/inputs/plain.png").value();
  ASSERT_TRUE(Encode(known).ok());
  EXPECT_TRUE(runtime_->Drain(base::RealClock().Now() + absl::Seconds(60)));
  EXPECT_TRUE(Encode(known).ok());
  const absl::Status status =
      Encode(base::ReadFile("models/shelf-vqa/inputs/grey.png").value()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(status), "DRAINING");
}

TEST_F(VisionRuntimeTest, DrainWaitsForThoseWhoHaveNotReadTheirRows) {
  TempDir dir;
  StartTinyModel(dir.path());
  const std::string bytes = base::ReadFile("models/shelf-vqa/inputs/plain.png").value();
  const auto ready = Encode(bytes);
  ASSERT_TRUE(ready.ok()) << ready.status();
  grpc::ClientContext context, reading;
  const auto holder = Offer(context, bytes);
  v1::EncodeResponse response;
  ASSERT_TRUE(holder->Read(&response) && response.has_ready());
  EXPECT_FALSE(runtime_->Drain(base::RealClock().Now()));
  v1::GetRecordRequest request;
  request.set_key(ready->ref().key());
  const auto reader = stub_->GetRecord(&reading, request);
  v1::GetRecordResponse chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  std::thread drain([this] { EXPECT_TRUE(runtime_->Drain(absl::InfiniteFuture())); });
  holder->WritesDone();
  EXPECT_TRUE(holder->Finish().ok());
  drain.join();
}

}  // namespace
}  // namespace tessera::vision
