#include "services/gateway/fleet/grpc_vision_client.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "tessera/v1/vision.grpc.pb.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

// Takes a picture's bytes, has its record, and waits until that is let go.
class TakesBytes final : public v1::VisionService::Service {
 public:
  grpc::Status Encode(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::EncodeResponse, v1::EncodeRequest>* stream) override {
    v1::EncodeRequest request;
    stream->Read(&request);
    const uint64_t size = request.offer().size_bytes();
    v1::EncodeResponse response;
    response.mutable_need_bytes();
    stream->Write(response);
    std::string bytes;
    while (bytes.size() < size && stream->Read(&request)) bytes += request.chunk();
    {
      base::MutexLock lock(mutex_);
      taken_ = std::move(bytes);
    }
    response.mutable_ready()->mutable_ref()->set_rows(16);
    stream->Write(response);
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  }

  std::string taken() {
    base::MutexLock lock(mutex_);
    return taken_;
  }

 private:
  base::Mutex mutex_;
  std::string taken_ ABSL_GUARDED_BY(mutex_);
};

TEST(GrpcVisionClientTest, BytesAreLetGoWhenTheRecordIsThereThoughTheRowsAreKept) {
  TakesBytes vision;
  testing::FakeClock clock;
  auto server = rpc::Server::Start({}, {&vision}, {"tessera.v1.VisionService"});
  ASSERT_TRUE(server.ok());
  auto client = MakeGrpcVisionClient((*server)->InProcessChannel(), clock);
  Picture picture;
  picture.bytes = std::make_shared<const std::string>(3'000'000, 'x');
  picture.size = picture.bytes->size();
  const std::weak_ptr<const std::string> bytes = picture.bytes;
  std::promise<absl::StatusOr<EncodedImage>> done;
  auto call = client->Encode(
      picture, false, {.request_id = {}, .trace = {}, .deadline = clock.Now() + absl::Minutes(5)},
      {nullptr, [&done](absl::StatusOr<EncodedImage> image) { done.set_value(std::move(image)); }});
  call->Start();
  picture.bytes = nullptr;
  absl::StatusOr<EncodedImage> image = done.get_future().get();
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(vision.taken(), std::string(3'000'000, 'x'));
  EXPECT_NE(image->rows, nullptr);
  EXPECT_TRUE(bytes.expired());
  image->rows = nullptr;
  call = nullptr;
  client = nullptr;  // waits for the call
}

}  // namespace
}  // namespace tessera::gateway
