#include <gtest/gtest.h>

#include <string>

#include "common/base/error.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

class HeldRowsTest : public VisionServiceTest {
 protected:
  // Sends a picture that nobody knows yet, and is told that its rows exist.
  void SendUntilReady(grpc::ClientReaderWriter<v1::EncodeRequest, v1::EncodeResponse>& stream,
                      const std::string& picture) {
    stream.Write(Offer(picture));
    v1::EncodeResponse response;
    EXPECT_TRUE(stream.Read(&response) && response.has_need_bytes());
    v1::EncodeRequest chunk;
    chunk.set_chunk(picture);
    stream.Write(chunk);
    while (stream.Read(&response) && !response.has_ready()) {
    }
    EXPECT_TRUE(response.has_ready());
  }
};

// The caller has been told of rows and has not closed its side: they are not to be lost.
TEST_F(HeldRowsTest, TheRecordIsHeldUntilTheCallerClosesItsSide) {
  Start();
  for (const bool known : {false, true}) {
    grpc::ClientContext context;
    const auto stream = stub_->Encode(&context);
    stream->Write(Offer(Bmp(3, 'a')));
    v1::EncodeResponse response;
    while (stream->Read(&response) && !response.has_ready()) {
      EXPECT_FALSE(known);
      if (!response.has_need_bytes()) continue;
      v1::EncodeRequest chunk;
      chunk.set_chunk(Bmp(3, 'a'));
      stream->Write(chunk);
    }
    EXPECT_TRUE(response.has_ready());
    EXPECT_GT(held_->bytes(), 0u);
    EXPECT_EQ(held_->bytes(), store_.records()[0]->footprint());
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
    server_->Shutdown(absl::ZeroDuration());  // the call's last step comes after its status
    EXPECT_EQ(held_->bytes(), 0u);
    Start();
  }
}

TEST_F(HeldRowsTest, ACallerThatLeavesLetsTheRecordGo) {
  Start();
  {
    grpc::ClientContext context;
    const auto stream = stub_->Encode(&context);
    SendUntilReady(*stream, Bmp(3, 'a'));
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(held_->bytes(), 0u);
}

TEST_F(HeldRowsTest, BeyondTheBytesHeldOnlyPicturesThatAreHeldAreTaken) {
  max_held_bytes_ = 1;
  Start();
  grpc::ClientContext context;
  const auto stream = stub_->Encode(&context);
  SendUntilReady(*stream, Bmp(3, 'a'));
  const Call other = Run(Bmp(3, 'b'));
  EXPECT_EQ(base::ReasonOf(other.status), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(other.status).has_value());
  EXPECT_FALSE(other.need_bytes);
  EXPECT_TRUE(Run(Bmp(3, 'a')).status.ok());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(HeldRowsTest, AMessageBehindThePictureIsRefused) {
  Start();
  EXPECT_EQ(base::ReasonOf(Run(Offer(Bmp(3, 'a')), {Bmp(3, 'a'), "more"}).status), "SIZE_MISMATCH");
}

}  // namespace
}  // namespace tessera::vision
