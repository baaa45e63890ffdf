// Uploads as calls of the gateway's service, and what becomes of their handles.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "common/metrics/names.h"
#include "tests/services/gateway/api/gateway_service_fixture.h"

namespace tessera::gateway {
namespace {

TEST_F(GatewayServiceTest, AnUploadedPictureCanBeAskedAbout) {
  const absl::StatusOr<v1::UploadImageResponse> upload = Upload(2'500'000);
  ASSERT_TRUE(upload.ok()) << upload.status();
  EXPECT_EQ(upload->sha256().size(), 64u);
  v1::GenerateRequest request = Question("with a handle");
  request.mutable_messages(0)->add_parts()->mutable_image()->set_handle(upload->handle());
  request.mutable_messages(0)->mutable_parts()->SwapElements(0, 1);
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const grpc::Status status = stub_->Generate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.text(), "with a handle");
}

// What has come of it is no picture.
TEST_F(GatewayServiceTest, AnUploadWhoseClientLeavesIsNotFinished) {
  constexpr int kUploads = 20;
  for (int i = 0; i < kUploads; ++i) {
    grpc::ClientContext context;
    v1::UploadImageResponse response;
    const auto writer = BeginUpload(context, response);
    context.TryCancel();
    EXPECT_EQ(writer->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  Stop();  // behind it, all has ended
  // Reads may end a moment before gRPC says why.
  EXPECT_LT(vision_.asked, kUploads / 2);
  EXPECT_GE(
      vision_.asked,
      all_metrics_.GetCounter(metrics::kGatewayRequests, {"UploadImage", "OK", "false"}).value());
}

TEST_F(GatewayServiceTest, AnEmptyOrTooLargeUploadIsRefused) {
  EXPECT_EQ(base::ReasonOf(Upload(0).status()), "IMAGE_EMPTY");
  EXPECT_EQ(base::ReasonOf(Upload((3 << 20) + 1).status()), "IMAGE_TOO_LARGE");
  EXPECT_TRUE(Upload(3 << 20).ok());
}

// Decode refuses here each time, and nobody hears of it.
TEST_F(GatewayServiceTest, AnUploadIsReadAheadWhenItNamesItsSession) {
  EXPECT_TRUE(Upload(100).ok());
  EXPECT_EQ(decode_.prefills.load(), 0);
  EXPECT_TRUE(Upload(100, "s").ok());
  AwaitPrefills(1);
  EXPECT_TRUE(Upload(200, std::string(256, 's')).ok());
  AwaitPrefills(2);
  EXPECT_EQ(base::FieldOf(Upload(100, std::string(257, 's')).status()), "session");
  Stop();
  options_.ahead_prefill = false;
  Start();
  EXPECT_TRUE(Upload(300, "s").ok());
  EXPECT_EQ(decode_.prefills.load(), 2);
}

TEST_F(GatewayServiceTest, AForgedHandleIsNotFound) {
  v1::GenerateRequest request = Question("x");
  request.mutable_messages(0)->add_parts()->mutable_image()->set_handle("forged");
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ResourceOf(status).first, "image_handle");
}

TEST_F(GatewayServiceTest, AnUploadThatIsNotFinishedEndsWithItsDeadline) {
  Stop();
  options_.deadline_cap = absl::Milliseconds(50);
  Start();
  grpc::ClientContext context;
  v1::UploadImageResponse response;
  const auto writer = BeginUpload(context, response);
  while (admission_.inflight() < 1) std::this_thread::yield();
  clock_.Advance(absl::Seconds(1));
  const absl::Status status = rpc::FromGrpc(writer->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(base::FactsOf(status)["stage"], "upload");
}

TEST_F(GatewayServiceTest, UploadsUnderWayCountAsRequests) {
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientWriter<v1::UploadImageRequest>>> writers;
  std::vector<v1::UploadImageResponse> responses(2);
  for (v1::UploadImageResponse& response : responses) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    writers.push_back(BeginUpload(*contexts.back(), response));
  }
  while (admission_.inflight() < 2) std::this_thread::yield();  // until the server has seen both
  EXPECT_EQ(base::ReasonOf(Upload(10).status()), "QUEUE_FULL");
  for (const auto& context : contexts) context->TryCancel();
  for (const auto& writer : writers) writer->Finish();
  admission_.Drain(absl::InfiniteFuture());  // both places come back
}

}  // namespace
}  // namespace tessera::gateway
