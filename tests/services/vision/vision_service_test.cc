#include "services/vision/vision_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(VisionServiceTest, ANewPictureIsAskedForPlannedAndComputed) {
  Start();
  const Call call = Run(Bmp(3, 'a'));
  ASSERT_TRUE(call.status.ok()) << call.status;
  EXPECT_TRUE(call.need_bytes);
  ASSERT_TRUE(call.plan && call.ready);
  EXPECT_EQ(call.plan->ref().rows(), 1u);
  EXPECT_FALSE(call.plan->ref().has_quality());
  EXPECT_EQ(call.ready->cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(call.ready->ref().key(), call.plan->ref().key());
  EXPECT_THAT(call.ready->ref().key(), SizeIs(32));
  EXPECT_EQ(call.ready->ref().width(), 2u);
  EXPECT_EQ(call.ready->ref().quality().scores().at("sharpness"), 1000);
  ASSERT_THAT(store_.records(), SizeIs(1));
  EXPECT_EQ(std::string(store_.records()[0]->key.bytes()), call.ready->ref().key());
}

TEST_F(VisionServiceTest, AKnownPictureIsReadyAtOnceForItsTenantOnly) {
  Start();
  ASSERT_TRUE(Run(Bmp(3, 'a'), "t").status.ok());
  const Call again = Run(Bmp(3, 'a'), "t");
  ASSERT_TRUE(again.ready);
  EXPECT_FALSE(again.need_bytes);
  EXPECT_EQ(again.ready->cache(), v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(again.ready->ref().rows(), 1u);
  EXPECT_EQ(again.ready->ref().quality().scores().at("sharpness"), 1000);
  const Call other = Run(Bmp(3, 'a'), "u");
  EXPECT_TRUE(other.need_bytes);
  EXPECT_EQ(tower_.batches().size(), 2u);
}

TEST_F(VisionServiceTest, OtherBytesThanOfferedAreRefusedAndNotKept) {
  Start();
  const Call call = Run(Offer(Bmp(3, 'a')), {Bmp(3, 'b')});
  EXPECT_EQ(call.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(call.status), "DIGEST_MISMATCH");
  EXPECT_THAT(store_.records(), IsEmpty());
  EXPECT_TRUE(Run(Bmp(3, 'a')).status.ok());
}

TEST_F(VisionServiceTest, MoreOrFewerBytesThanOfferedAreRefused) {
  Start();
  const std::string bmp = Bmp(3, 'a');
  EXPECT_EQ(base::ReasonOf(Run(Offer(bmp), {bmp + "x"}).status), "SIZE_MISMATCH");
  EXPECT_EQ(base::ReasonOf(Run(Offer(bmp), {bmp.substr(0, bmp.size() - 1)}).status),
            "SIZE_MISMATCH");
  EXPECT_EQ(base::ReasonOf(Run(Offer(bmp), {}).status), "SIZE_MISMATCH");
}

TEST_F(VisionServiceTest, BadOffersAreRefused) {
  limits_.max_bytes = 100;
  Start();
  v1::EncodeRequest offer = Offer("picture");
  offer.mutable_offer()->set_digest("short");
  EXPECT_EQ(base::ReasonOf(Run(offer, {}).status), "OFFER_INVALID");
  v1::EncodeRequest chunk;
  chunk.set_chunk("x");
  EXPECT_EQ(base::ReasonOf(Run(chunk, {}).status), "OFFER_INVALID");
  EXPECT_EQ(base::ReasonOf(Run(v1::EncodeRequest(), {}).status), "OFFER_INVALID");
  EXPECT_EQ(base::ReasonOf(Run(Offer(""), {}).status), "IMAGE_EMPTY");
  EXPECT_EQ(base::ReasonOf(Run(Offer(std::string(101, 'x')), {}).status), "IMAGE_TOO_LARGE");
}

TEST_F(VisionServiceTest, ATruncatedPictureIsNotCachedAndTheNextRequestWorks) {
  Start();
  const std::string good = Bmp(100, 'a');
  for (int i = 0; i < 2; ++i) {
    const Call cut = Run(good.substr(0, good.size() / 2));
    EXPECT_EQ(cut.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::ReasonOf(cut.status), "IMAGE_CORRUPT");
    EXPECT_FALSE(cut.ready);
  }
  EXPECT_EQ(base::ReasonOf(Run("no picture at all").status), "IMAGE_FORMAT");
  EXPECT_THAT(store_.records(), IsEmpty());
  EXPECT_TRUE(Run(good).ready);
}

TEST_F(VisionServiceTest, AHugePictureIsRefusedFromItsHeader) {
  steps_.decode = [](absl::string_view, const StillWanted&) -> absl::StatusOr<RgbImage> {
    ADD_FAILURE() << "decoded";
    return RgbImage();
  };
  Start();
  for (const char* name : {"png_bomb_12000x12000.png", "jpeg_claims_64250x64250.jpg"}) {
    const std::string bytes =
        base::ReadFile(absl::StrCat("tests/goldens/images_bad/", name)).value();
    const Call call = Run(bytes);
    EXPECT_EQ(call.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::ReasonOf(call.status), "IMAGE_TOO_LARGE") << call.status;
    EXPECT_FALSE(call.plan);
    EXPECT_LT(call.status.message().size(), 1000u);
  }
}

TEST_F(VisionServiceTest, TheGateRefusesNewAndKnownPicturesByTodaysThresholds) {
  Start();
  ASSERT_TRUE(Run(Bmp(3, 1)).ready);  // black, and nobody judges
  EXPECT_EQ(Run(Bmp(3, 1)).ready->ref().quality().verdict(), v1::QUALITY_VERDICT_UNSPECIFIED);
  server_->Shutdown(absl::ZeroDuration());
  gate_ = QualityGate(true, {});
  Start();
  for (const char colour : {1, 2}) {  // known, new
    const Call call = Run(Bmp(3, colour));
    EXPECT_EQ(call.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::ReasonOf(call.status), "IMAGE_QUALITY");
    EXPECT_THAT(std::string(call.status.message()), HasSubstr("dark"));
    EXPECT_EQ(call.need_bytes, colour == 2);
  }
  EXPECT_THAT(store_.records(), SizeIs(1));
  EXPECT_EQ(Run(Bmp(3, 100)).ready->ref().quality().verdict(), v1::QUALITY_VERDICT_PASS);
}

TEST_F(VisionServiceTest, ARefusedPictureIsNeitherTakenNorDecodedAgain) {
  std::atomic<int> decoded = 0;
  steps_.decode = [&](absl::string_view, const StillWanted&) -> absl::StatusOr<RgbImage> {
    ++decoded;
    return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_CORRUPT", "broken inside");
  };
  Start();
  const std::string bytes = Bmp(3, 'a');
  for (int i = 0; i < 50; ++i) {
    const Call call = Run(bytes);
    EXPECT_EQ(base::ReasonOf(call.status), "IMAGE_CORRUPT") << call.status;
    EXPECT_EQ(call.status.message(), "broken inside");
    EXPECT_EQ(call.need_bytes, i == 0);
  }
  EXPECT_EQ(decoded, 1);
  EXPECT_EQ(base::ReasonOf(Run(bytes, "another tenant").status), "IMAGE_CORRUPT");
  EXPECT_EQ(decoded, 2);
}

TEST_F(VisionServiceTest, AFailureThatIsNoRefusalIsTriedAgain) {
  std::atomic<int> decoded = 0;
  const auto decode = steps_.decode;
  steps_.decode = [&](absl::string_view bytes,
                      const StillWanted& wanted) -> absl::StatusOr<RgbImage> {
    if (++decoded == 1) return absl::ResourceExhaustedError("no memory");
    return decode(bytes, wanted);
  };
  Start();
  EXPECT_EQ(Run(Bmp(3, 'a')).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Run(Bmp(3, 'a')).status.ok());
}

TEST_F(VisionServiceTest, ACallerThatLeavesDropsItsWaiterAndTheOtherIsAnswered) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    gate.Pass();
    return decode(bytes, wanted);
  };
  options_.prepare_threads = 1;
  Start();
  const auto begin = [this](const std::string& bytes, grpc::ClientContext& context) {
    auto stream = stub_->Encode(&context);
    stream->Write(Offer(bytes));
    v1::EncodeResponse response;
    EXPECT_TRUE(stream->Read(&response) && response.has_need_bytes());
    v1::EncodeRequest chunk;
    chunk.set_chunk(bytes);
    stream->Write(chunk);
    EXPECT_TRUE(stream->Read(&response) && response.has_plan());
    return stream;
  };
  grpc::ClientContext stays_context, leaves_context, alone_context;
  const auto stays = begin(Bmp(3, 'a'), stays_context);
  gate.AwaitArrivals(1);
  const auto leaves = begin(Bmp(3, 'a'), leaves_context);
  const auto alone = begin(Bmp(3, 'b'), alone_context);
  leaves_context.TryCancel();
  alone_context.TryCancel();
  EXPECT_EQ(leaves->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(alone->Finish().error_code(), grpc::StatusCode::CANCELLED);
  gate.Open();
  v1::EncodeResponse response;
  EXPECT_TRUE(stays->Read(&response) && response.has_ready());
  stays->WritesDone();
  EXPECT_TRUE(stays->Finish().ok());
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
}

TEST_F(VisionServiceTest, AFullQueueIsResourceExhaustedWithRetryInfo) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  options_.max_pending_images = 1;
  Start();
  std::thread first([this] { EXPECT_TRUE(Run(Bmp(3, 'a')).status.ok()); });
  gate.AwaitArrivals(1);
  const Call second = Run(Bmp(3, 'b'));
  EXPECT_EQ(second.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(second.status), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(second.status).has_value());
  gate.Open();
  first.join();
  EXPECT_TRUE(Run(Bmp(3, 'b')).status.ok());
  Stop();
}

TEST_F(VisionServiceTest, ADelayInEachStageAppearsInExactlyItsField) {
  using Seconds = google::protobuf::util::MessageDifferencer;
  const auto decode = steps_.decode;
  const auto preprocess = steps_.preprocess;
  absl::Duration decode_takes, preprocess_takes, encode_takes;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    clock_.Advance(decode_takes);
    return decode(bytes, wanted);
  };
  steps_.preprocess = [&, preprocess](const RgbImage& image) {
    clock_.Advance(preprocess_takes);
    return preprocess(image);
  };
  tower_.hook = [&] { clock_.Advance(encode_takes); };
  store_.clock = &clock_;
  char colour = 'a';
  const auto expect = [&](absl::Duration& delay, void (v1::StageSeconds::*set)(double),
                          double expected) {
    delay = absl::Seconds(2);
    Start();
    const Call call = Run(Bmp(3, colour++));
    Stop();
    delay = absl::ZeroDuration();
    v1::StageSeconds seconds;
    (seconds.*set)(expected);
    ASSERT_TRUE(call.ready);
    EXPECT_TRUE(Seconds::Equals(call.ready->stages(), seconds))
        << call.ready->stages().DebugString();
  };
  expect(decode_takes, &v1::StageSeconds::set_image_decode_seconds, 2);
  expect(preprocess_takes, &v1::StageSeconds::set_preprocess_seconds, 2);
  expect(encode_takes, &v1::StageSeconds::set_encode_seconds, 2);
  expect(store_.put_takes, &v1::StageSeconds::set_store_seconds, 2);
  // A new picture is looked up twice: at the offer, and before the work begins.
  expect(store_.get_takes, &v1::StageSeconds::set_fetch_seconds, 4);
}

TEST_F(VisionServiceTest, GetInfoTellsTheFingerprintThatRefsCarry) {
  Start();
  grpc::ClientContext context;
  v1::VisionServiceGetInfoResponse info;
  ASSERT_TRUE(stub_->GetInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.rows_per_image(), 1u);
  EXPECT_EQ(info.device(), "fake");
  EXPECT_THAT(info.vision_fingerprint(), SizeIs(64));
  EXPECT_EQ(Run(Bmp(3, 'a')).ready->ref().vision_fingerprint(), info.vision_fingerprint());
}

}  // namespace
}  // namespace tessera::vision
