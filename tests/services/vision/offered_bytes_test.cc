// Bytes that a call has offered take room before they are asked for, and only so long.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "common/base/error.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

// There is room for one of these.
class OfferedBytesTest : public VisionServiceTest {
 protected:
  OfferedBytesTest() { options_.max_pending_bytes = Bmp(100, 'a').size(); }

  // The call in which the picture has been asked for.
  std::unique_ptr<Stream> Begin(grpc::ClientContext& context, const std::string& picture) {
    auto stream = stub_->Encode(&context);
    stream->Write(Offer(picture));
    v1::EncodeResponse response;
    EXPECT_TRUE(stream->Read(&response) && response.has_need_bytes());
    return stream;
  }
  void ExpectNoRoomFor(const std::string& picture) {
    const Call call = Run(picture);
    EXPECT_FALSE(call.need_bytes);
    EXPECT_EQ(call.status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(base::ReasonOf(call.status), "QUEUE_FULL");
    EXPECT_TRUE(base::RetryOf(call.status).has_value());
  }
  void ExpectAllGivenBack() {
    server_->Shutdown(absl::ZeroDuration());  // the call's last step comes after its status
    EXPECT_TRUE(pipeline_->Reserve(options_.max_pending_bytes).ok());
  }

  const std::string picture_ = Bmp(100, 'a'), other_ = Bmp(100, 'b');
};

TEST_F(OfferedBytesTest, WithoutRoomNoBytesAreAskedFor) {
  Start();
  grpc::ClientContext context;
  const auto stream = Begin(context, picture_);
  ExpectNoRoomFor(other_);
  EXPECT_TRUE(store_.records().empty());
  v1::EncodeRequest chunk;
  chunk.set_chunk(picture_);
  stream->Write(chunk);  // it has its room: it is not asked for again
  v1::EncodeResponse response;
  while (stream->Read(&response) && !response.has_ready()) {
  }
  EXPECT_TRUE(response.has_ready());
  EXPECT_TRUE(Run(other_).status.ok());  // though the first call is open
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  ExpectAllGivenBack();
}

TEST_F(OfferedBytesTest, APictureInTheTowerStillTakesItsRoom) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Start();
  std::thread first([this] { EXPECT_TRUE(Run(picture_).status.ok()); });
  gate.AwaitArrivals(1);
  ExpectNoRoomFor(other_);
  gate.Open();
  first.join();
  EXPECT_TRUE(Run(other_).status.ok());
  ExpectAllGivenBack();
  Stop();
}

TEST_F(OfferedBytesTest, AKnownPictureNeedsNoRoom) {
  Start();
  ASSERT_TRUE(Run(other_).status.ok());
  grpc::ClientContext context;
  const auto stream = Begin(context, picture_);
  EXPECT_TRUE(Run(other_).ready);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(OfferedBytesTest, ACallerThatLeavesGivesTheRoomBack) {
  Start();
  for (const size_t sent : {size_t{0}, size_t{10}}) {
    grpc::ClientContext context;
    const auto stream = Begin(context, picture_);
    v1::EncodeRequest chunk;
    chunk.set_chunk(picture_.substr(0, sent));
    if (sent > 0) stream->Write(chunk);
    context.TryCancel();
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    ExpectAllGivenBack();
    Start();
  }
}

TEST_F(OfferedBytesTest, ACallThatFailsGivesTheRoomBack) {
  gate_ = QualityGate(true, {});
  const std::string black = Bmp(100, 1), junk(100, 'x');
  const struct {
    std::string offered, sent;
    const char* reason;
  } cases[] = {{picture_, picture_ + "x", "SIZE_MISMATCH"},
               {picture_, picture_.substr(0, picture_.size() - 1), "SIZE_MISMATCH"},
               {picture_, other_, "DIGEST_MISMATCH"},
               {junk, junk, "IMAGE_FORMAT"},
               {black, black, "IMAGE_QUALITY"}};
  for (const auto& [offered, sent, reason] : cases) {
    Start();
    EXPECT_EQ(base::ReasonOf(Run(Offer(offered), {sent}).status), reason);
    ExpectAllGivenBack();
  }
}

TEST_F(OfferedBytesTest, ADrainingServiceAsksForNoBytes) {
  Start();
  EXPECT_TRUE(pipeline_->Drain(clock_.Now()));
  const Call call = Run(picture_);
  EXPECT_FALSE(call.need_bytes);
  EXPECT_EQ(base::ReasonOf(call.status), "DRAINING");
}

}  // namespace
}  // namespace tessera::vision
