// Offers that bring the picture's beginning, and hold its end back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "tests/services/vision/image/pictures.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class FirstChunkTest : public VisionServiceTest {
 protected:
  static v1::EncodeRequest Offer(const std::string& picture, size_t first, size_t held = 0) {
    v1::EncodeRequest request = VisionServiceTest::Offer(picture);
    request.mutable_offer()->set_first_chunk(picture.substr(0, first));
    request.mutable_offer()->set_held_bytes(held);
    return request;
  }
  static v1::EncodeRequest Chunk(const std::string& bytes) {
    v1::EncodeRequest request;
    request.set_chunk(bytes);
    return request;
  }
  void Begin(const v1::EncodeRequest& offer) {
    stream_ = nullptr;
    context_ = std::make_unique<grpc::ClientContext>();
    stream_ = stub_->Encode(context_.get());
    ASSERT_TRUE(stream_->Write(offer));
  }
  // What vision says next; NOT_SET at its end.
  v1::EncodeResponse::KindCase Next() {
    response_.Clear();
    stream_->Read(&response_);
    return response_.kind_case();
  }
  absl::Status End() {
    stream_->WritesDone();
    while (stream_->Read(&response_)) {
    }
    return rpc::FromGrpc(stream_->Finish());
  }
  void ExpectAllGivenBack() {
    server_->Shutdown(absl::ZeroDuration());  // the call's last step comes after its status
    EXPECT_TRUE(pipeline_->Reserve(options_.max_pending_bytes).ok());
  }

  static constexpr auto kNeedBytes = v1::EncodeResponse::kNeedBytes,
                        kPlan = v1::EncodeResponse::kPlan, kReady = v1::EncodeResponse::kReady;
  const std::string picture_ = Bmp(100, 'a');  // 354 bytes, of which 54 are the header
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  v1::EncodeResponse response_;
};

TEST_F(FirstChunkTest, ThePlanComesWithTheHeaderAndTheEncodeWithTheLastByte) {
  Start();
  Begin(Offer(picture_, 60, 100));
  ASSERT_EQ(Next(), kPlan);
  EXPECT_EQ(response_.plan().ref().rows(), 1u);
  EXPECT_FALSE(response_.plan().ref().has_quality());
  stream_->Write(Chunk(picture_.substr(60, picture_.size() - 160)));
  EXPECT_THAT(tower_.batches(), IsEmpty());
  EXPECT_EQ(pipeline_->stats().pending_images, 0) << "the held bytes are not here";
  stream_->Write(Chunk(picture_.substr(picture_.size() - 100)));
  ASSERT_EQ(Next(), kReady);
  EXPECT_EQ(response_.ready().cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_TRUE(End().ok());
  EXPECT_THAT(store_.records(), SizeIs(1));
  ExpectAllGivenBack();
}

TEST_F(FirstChunkTest, AWholePictureInTheOfferIsPlannedAndEncoded) {
  Start();
  Begin(Offer(picture_, picture_.size()));
  EXPECT_EQ(Next(), kPlan);
  EXPECT_EQ(Next(), kReady);
  EXPECT_TRUE(End().ok());
  ExpectAllGivenBack();
}

TEST_F(FirstChunkTest, OnlyAPictureWithoutAnyByteIsAskedFor) {
  Start();
  Begin(Offer(picture_, 0, 100));
  EXPECT_EQ(Next(), kNeedBytes);
  stream_->Write(Chunk(picture_.substr(0, picture_.size() - 100)));
  EXPECT_EQ(Next(), kPlan) << "and no second NeedBytes, since the header is here";
  stream_->Write(Chunk(picture_.substr(picture_.size() - 100)));
  EXPECT_EQ(Next(), kReady);
  EXPECT_TRUE(End().ok());
}

TEST_F(FirstChunkTest, HeldBytesAreAskedForWhereTheyHoldTheHeader) {
  Start();
  for (const size_t first : {size_t{0}, size_t{20}}) {
    const std::string picture = Bmp(100, static_cast<char>('c' + first));
    Begin(Offer(picture, first, picture.size() - 20));
    if (first == 0) {
      EXPECT_EQ(Next(), kNeedBytes);
      stream_->Write(Chunk(picture.substr(0, 20)));
    }
    EXPECT_EQ(Next(), kNeedBytes);
    stream_->Write(Chunk(picture.substr(20)));
    EXPECT_EQ(Next(), kPlan);
    EXPECT_EQ(Next(), kReady);
    EXPECT_TRUE(End().ok());
  }
}

TEST_F(FirstChunkTest, AKnownPictureIsReadyAtOnceWhateverChunksAreOnTheirWay) {
  Start();
  ASSERT_TRUE(Run(picture_).ready);
  Begin(Offer(picture_, 10));
  stream_->Write(Chunk(picture_.substr(10, 50)));
  EXPECT_EQ(Next(), kReady);
  EXPECT_EQ(response_.ready().cache(), v1::CACHE_TIER_LOCAL);
  stream_->Write(Chunk(picture_.substr(60)));
  EXPECT_TRUE(End().ok());
  // But no more than there were to come, and none where none was under way.
  for (const size_t first : {size_t{0}, size_t{10}}) {
    Begin(Offer(picture_, first));
    EXPECT_EQ(Next(), kReady);
    stream_->Write(Chunk(picture_.substr(first) + (first == 0 ? "" : "x")));
    EXPECT_EQ(base::ReasonOf(End()), "SIZE_MISMATCH");
  }
  EXPECT_THAT(tower_.batches(), SizeIs(1));
  ExpectAllGivenBack();
}

TEST_F(FirstChunkTest, ARefusalComesAsEarlyAsItsReasonIsHere) {
  limits_.max_side = 99;
  Start();
  Begin(Offer(picture_, 60, 100));
  EXPECT_EQ(Next(), v1::EncodeResponse::KIND_NOT_SET);
  EXPECT_EQ(base::ReasonOf(rpc::FromGrpc(stream_->Finish())), "IMAGE_TOO_LARGE");
  const std::string text(100, 'x');
  Begin(Offer(text, 20, 10));
  EXPECT_EQ(Next(), v1::EncodeResponse::KIND_NOT_SET);
  EXPECT_EQ(base::ReasonOf(rpc::FromGrpc(stream_->Finish())), "IMAGE_FORMAT");
  ExpectAllGivenBack();
}

TEST_F(FirstChunkTest, OffersThatContradictThemselvesAreRefused) {
  Start();
  const auto reason = [this](const v1::EncodeRequest& offer) {
    return base::ReasonOf(Run(offer, {}).status);
  };
  v1::EncodeRequest longer = Offer(picture_, picture_.size());
  longer.mutable_offer()->mutable_first_chunk()->push_back('x');
  EXPECT_EQ(reason(longer), "SIZE_MISMATCH");
  EXPECT_EQ(reason(Offer(picture_, 0, picture_.size() + 1)), "OFFER_INVALID");
  EXPECT_EQ(reason(Offer(picture_, 100, picture_.size() - 99)), "OFFER_INVALID");
  EXPECT_EQ(reason(Offer(picture_, 0, UINT64_MAX)), "OFFER_INVALID");
}

TEST_F(FirstChunkTest, BytesThatAreNotThoseOfferedAreRefusedAtTheirEnd) {
  Start();
  Begin(Offer(picture_, 60));
  stream_->Write(Chunk(picture_.substr(61) + "x"));
  EXPECT_EQ(Next(), kPlan);
  EXPECT_EQ(base::ReasonOf(End()), "DIGEST_MISMATCH");
  Begin(Offer(picture_, 60, 100));
  EXPECT_EQ(Next(), kPlan);
  EXPECT_EQ(base::ReasonOf(End()), "SIZE_MISMATCH") << "the held bytes never came";
  EXPECT_THAT(store_.records(), IsEmpty());
  ExpectAllGivenBack();
}

// There is room for one picture.
TEST_F(FirstChunkTest, AFirstChunkIsKeptOnlyWhereThePictureHasRoom) {
  options_.max_pending_bytes = picture_.size();
  Start();
  const std::string known = Bmp(50, 'k');
  ASSERT_TRUE(Run(known).ready);
  Begin(Offer(picture_, 60, 100));
  EXPECT_EQ(Next(), kPlan);
  const auto waiting_context = std::move(context_);
  const auto waiting = std::move(stream_);
  Begin(Offer(Bmp(100, 'b'), 60));
  EXPECT_EQ(Next(), v1::EncodeResponse::KIND_NOT_SET);
  const absl::Status full = rpc::FromGrpc(stream_->Finish());
  EXPECT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(full).has_value());
  Begin(Offer(known, 60));
  EXPECT_EQ(Next(), kReady) << "a known picture needs no room";
  EXPECT_TRUE(End().ok());
  waiting_context->TryCancel();
  EXPECT_EQ(waiting->Finish().error_code(), grpc::StatusCode::CANCELLED);
  ExpectAllGivenBack();
}

// Nothing waits for the caller to read what it is told.
TEST_F(FirstChunkTest, TheEncodeDoesNotWaitUntilThePlanIsRead) {
  Start();
  Begin(Offer(picture_, picture_.size()));
  while (tower_.batches().empty()) std::this_thread::yield();
  EXPECT_EQ(Next(), kPlan);
  EXPECT_EQ(Next(), kReady);
  EXPECT_TRUE(End().ok());
}

TEST_F(FirstChunkTest, ACallerThatLeavesWithBytesHeldBackLeavesNothing) {
  Start();
  for (int i = 0; i < 20; ++i) {
    Begin(Offer(picture_, 60, 100));
    EXPECT_EQ(i % 2 == 0 ? Next() : kPlan, kPlan);
    context_->TryCancel();
    EXPECT_EQ(stream_->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_THAT(tower_.batches(), IsEmpty());
  ExpectAllGivenBack();
}

}  // namespace
}  // namespace tessera::vision
