#include "services/gateway/answer/answer_pictures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "tests/services/gateway/answer/answer_fixture.h"

namespace tessera::gateway {
namespace {

absl::Status VisionDown() {
  return base::WithRetry(base::Error(absl::StatusCode::kUnavailable, "VISION_DOWN", "nobody"),
                         absl::Seconds(1));
}

TEST_F(AnswerTest, DecodeStartsWhenEveryPictureIsReady) {
  Ask({"a", "b"});
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_TRUE(decode_.calls.empty());
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  ASSERT_EQ(decode_.calls.size(), 1u);
  EXPECT_EQ(decode_.calls[0]->start.images_size(), 2);
}

TEST_F(AnswerTest, PicturesAreEncodedOnceTheRowsOfAllAreKnown) {
  Ask({"a", "b", "c"});
  vision_.calls.at(2)->Plan();
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  EXPECT_FALSE(vision_.calls[2]->proceeded);
  vision_.calls.at(1)->Plan();
  for (const size_t call : {1, 2}) EXPECT_TRUE(vision_.calls.at(call)->proceeded);
  EXPECT_TRUE(decode_.calls.empty());
}

TEST_F(AnswerTest, PicturesThatCannotFitAreRefusedBeforeAnyIsEncoded) {
  context_tokens_ = 2048;
  Ask({"a", "b", "c", "d"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);  // 16 rows, which were there
  vision_.calls.at(1)->Plan(1000);
  vision_.calls.at(2)->Plan(1000);
  EXPECT_EQ(sink_.ends, 0);
  vision_.calls.at(3)->Plan(31);
  ASSERT_EQ(sink_.ends, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(sink_.status)) << sink_.status;
  EXPECT_EQ(base::ReasonOf(sink_.status), "CONTEXT_TOO_LONG");
  EXPECT_THAT(std::string(sink_.status.message()),
              ::testing::AllOf(::testing::HasSubstr("4 pictures have 2047 rows"),
                               ::testing::HasSubstr("2048")));
  for (const size_t call : {1, 2, 3}) {
    EXPECT_FALSE(vision_.calls.at(call)->proceeded);
    EXPECT_TRUE(vision_.calls.at(call)->cancelled);
  }
  EXPECT_TRUE(decode_.calls.empty());
}

TEST_F(AnswerTest, PicturesThatLeaveRoomForATokenOfTextAndOneOfTheAnswerAreEncoded) {
  context_tokens_ = 2048;
  Ask({"a", "b"});
  vision_.calls.at(0)->Plan(1023);
  vision_.calls.at(1)->Plan(1023);
  for (const size_t call : {0, 1}) EXPECT_TRUE(vision_.calls.at(call)->proceeded);
}

TEST_F(AnswerTest, AnyPlansAreRefusedExactlyWhenTheyCannotFit) {
  context_tokens_ = 2048;
  std::mt19937 random(16);
  for (int round = 0; round < 1000; ++round) {
    vision_.calls.clear();
    sink_ = {};
    const size_t count = 1 + random() % 5;
    std::vector<std::string> pictures;
    for (size_t i = 0; i < count; ++i) pictures.push_back(absl::StrCat(round, ".", i));
    const auto answer = Ask(pictures);
    int64_t rows = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto planned = static_cast<uint32_t>(1 + random() % (i + 1 < count ? 900 : 2100));
      rows += planned;
      vision_.calls.at(i)->Plan(planned);
    }
    ASSERT_EQ(sink_.ends > 0, rows + 2 > 2048) << rows;
    for (const auto& call : vision_.calls) ASSERT_EQ(call->proceeded, sink_.ends == 0) << rows;
    answer->Cancel();
  }
}

TEST_F(AnswerTest, APictureOfAnotherUploadCountsOnceThatHasEnded) {
  resolver_.EncodeAhead({"", base::Sha256Of("a"), std::make_shared<absl::Cord>("a"), 1}, {});
  EXPECT_TRUE(vision_.calls.at(0)->proceeded) << "it waits for nobody";
  Ask({"a", "b"});
  vision_.calls.at(1)->Plan();
  EXPECT_FALSE(vision_.calls[1]->proceeded);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_TRUE(vision_.calls[1]->proceeded);
}

TEST_F(AnswerTest, APictureWhoseUploadFailedIsPlannedAsAnyOther) {
  resolver_.EncodeAhead({"", base::Sha256Of("a"), std::make_shared<absl::Cord>("a"), 1}, {});
  Ask({"a", "b"});
  vision_.calls.at(1)->Plan();
  vision_.calls.at(0)->Fail(VisionDown());
  ASSERT_EQ(vision_.calls.size(), 3u);
  for (const size_t call : {1, 2}) EXPECT_FALSE(vision_.calls.at(call)->proceeded);
  vision_.calls[2]->Plan();
  for (const size_t call : {1, 2}) EXPECT_TRUE(vision_.calls.at(call)->proceeded);
}

TEST_F(AnswerTest, ABadPictureEndsTheAnswerAndItsOtherEncodes) {
  Ask({"a", "b"});
  vision_.calls.at(0)->Fail(
      base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_FORMAT", "not a picture"));
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_EQ(base::ReasonOf(sink_.status), "IMAGE_FORMAT");
  EXPECT_EQ(base::FieldOf(sink_.status), "messages[0].parts[0].image");
  EXPECT_EQ(sink_.status.message(), "messages[0].parts[0].image: not a picture");
  EXPECT_TRUE(vision_.calls.at(1)->cancelled);
  EXPECT_TRUE(decode_.calls.empty());
}

TEST_F(AnswerTest, RowsAreKeptUntilDecodeHasReadThem) {
  Ask({"a", "b"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_FALSE(vision_.calls.at(0)->rows.expired()) << "while others are encoded";
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_LOCAL);
  decode_.calls.at(0)->NeedRows(1);
  vision_.calls.at(2)->Ready(v1::CACHE_TIER_COMPUTED);
  for (const size_t call : {0, 2}) EXPECT_FALSE(vision_.calls.at(call)->rows.expired());
  decode_.calls.at(0)->Piece("x");
  for (const size_t call : {0, 1, 2}) EXPECT_TRUE(vision_.calls.at(call)->rows.expired());
}

TEST_F(AnswerTest, RowsAreLetGoWithTheEnd) {
  const std::shared_ptr<Answer> failed = Ask({"a", "b"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  vision_.calls.at(1)->Fail(absl::UnavailableError("down"));
  EXPECT_TRUE(vision_.calls.at(0)->rows.expired());
  const std::shared_ptr<Answer> empty = Ask({"c"});
  vision_.calls.at(2)->Ready(v1::CACHE_TIER_COMPUTED);
  decode_.calls.at(0)->End(absl::OkStatus());
  EXPECT_TRUE(vision_.calls.at(2)->rows.expired());
}

TEST_F(AnswerTest, AnUploadsRowsAreKeptForWhoWaitsForItOnly) {
  const Picture picture{"", base::Sha256Of("a"), std::make_shared<absl::Cord>("a"), 1};
  resolver_.EncodeAhead(picture, {});
  Ask({"a"});
  ASSERT_EQ(vision_.calls.size(), 1u);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_FALSE(vision_.calls.at(0)->rows.expired());
  decode_.calls.at(0)->Piece("x");
  EXPECT_TRUE(vision_.calls.at(0)->rows.expired());
  resolver_.EncodeAhead({"", base::Sha256Of("b"), std::make_shared<absl::Cord>("b"), 1}, {});
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_TRUE(vision_.calls.at(1)->rows.expired());
}

// Decode computes again what it gave up for others, in the midst of the answer: the bytes are gone
// by then, the record need not be.
TEST_F(AnswerTest, RowsAskedForLateAreFoundByDigest) {
  Ask({"a", "b"});
  for (const size_t call : {0, 1}) vision_.calls.at(call)->Ready(v1::CACHE_TIER_COMPUTED);
  decode_.calls.at(0)->Piece("x");
  decode_.calls[0]->NeedRows(1);
  ASSERT_EQ(vision_.calls.size(), 3u);
  EXPECT_EQ(vision_.calls[2]->picture.bytes, nullptr);
  EXPECT_EQ(vision_.calls[2]->picture.digest, base::Sha256Of("b"));
  vision_.calls[2]->Ready(v1::CACHE_TIER_LOCAL);
  EXPECT_EQ(decode_.calls[0]->rows_ready, std::vector<uint32_t>{1});
  EXPECT_FALSE(vision_.calls[2]->rows.expired());
  decode_.calls[0]->Piece("y");
  EXPECT_TRUE(vision_.calls[2]->rows.expired());
  decode_.calls[0]->End(absl::OkStatus());
  EXPECT_TRUE(sink_.status.ok());
  EXPECT_EQ(sink_.texts, "xy");
}

TEST_F(AnswerTest, RowsAskedForLateAndGoneEndTheAnswerWithARetry) {
  for (const absl::Status& status :
       {base::Error(absl::StatusCode::kNotFound, "IMAGE_EXPIRED", "gone"),
        base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_EMPTY", "no bytes")}) {
    sink_ = RecordingSink();
    const size_t calls = vision_.calls.size();
    Ask({"a picture for " + base::ReasonOf(status)});
    vision_.calls.at(calls)->Ready(v1::CACHE_TIER_COMPUTED);
    const auto decode = decode_.calls.back();
    decode->Piece("x");
    decode->NeedRows(0);
    vision_.calls.at(calls + 1)->Fail(status);
    EXPECT_TRUE(decode->cancelled);
    EXPECT_EQ(sink_.ends, 1);
    EXPECT_EQ(sink_.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(base::ReasonOf(sink_.status), "ROWS_MISSING");
    EXPECT_TRUE(base::RetryOf(sink_.status).has_value());
    EXPECT_EQ(base::FieldOf(sink_.status), "");
  }
}

TEST_F(AnswerTest, LostRowsAreMadeAgain) {
  Ask({"a"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  decode_.calls.at(0)->NeedRows(0);
  ASSERT_EQ(vision_.calls.size(), 2u);
  ASSERT_NE(vision_.calls[1]->picture.bytes, nullptr);
  EXPECT_EQ(*vision_.calls[1]->picture.bytes, "a");
  EXPECT_TRUE(vision_.calls[1]->proceeded) << "decode waits for it";
  vision_.calls[1]->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(decode_.calls[0]->rows_ready, std::vector<uint32_t>{0});
}

TEST_F(AnswerTest, CallsThatMadeRowsAgainAreLetGoWithTheFirstPiece) {
  const std::shared_ptr<Answer> answer = Ask({"a"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  decode_.calls.at(0)->NeedRows(0);
  const std::weak_ptr<Call> call = vision_.calls.at(1);  // has the picture's bytes
  vision_.calls[1]->Ready(v1::CACHE_TIER_COMPUTED);
  vision_.calls.clear();
  EXPECT_FALSE(call.expired());
  decode_.calls[0]->Piece("x");
  EXPECT_TRUE(call.expired());
}

TEST_F(AnswerTest, RowsThatCannotBeMadeAgainFailTheAnswerWithTheirReason) {
  Ask({"a"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  decode_.calls.at(0)->NeedRows(0);
  vision_.calls.at(1)->Fail(base::Error(absl::StatusCode::kUnavailable, "VISION_DOWN", "down"));
  EXPECT_TRUE(decode_.calls[0]->cancelled);
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_EQ(base::ReasonOf(sink_.status), "VISION_DOWN");
}

TEST_F(AnswerTest, ALowQualityPictureWarnsAtTheEndOfItsTurn) {
  Ask({"a", "b"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED, v1::QUALITY_VERDICT_WARN);
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED, v1::QUALITY_VERDICT_WARN);
  const v1::DecodeMessage& turn = decode_.calls.at(0)->start.messages(0);
  ASSERT_EQ(turn.parts_size(), 4);  // two pictures, the question, one warning
  EXPECT_EQ(turn.parts(3).text(), "\n(blurred)");
}

TEST_F(AnswerTest, WithoutAnEncoderAnUnknownPictureFailsAtOnceWithARetry) {
  Ask({"a"});
  vision_.calls.at(0)->Fail(VisionDown());
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_EQ(base::ReasonOf(sink_.status), "VISION_DOWN");
  EXPECT_TRUE(base::RetryOf(sink_.status).has_value());
  EXPECT_TRUE(decode_.calls.empty());
}

TEST_F(AnswerTest, WhoAsksForItIsAnsweredWithoutThePictureAndTold) {
  v1::GenerateRequest request = Question({"a", "b"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  const std::shared_ptr<Answer> answer = AskFor(request);
  vision_.calls.at(0)->Fail(VisionDown());
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  const v1::DecodeStart& start = decode_.calls.at(0)->start;
  ASSERT_EQ(start.images_size(), 1);
  EXPECT_TRUE(start.messages(0).parts(0).has_text());
  EXPECT_EQ(start.messages(0).parts(1).image(), 0u);
  decode_.calls[0]->Piece("one. ");
  decode_.calls[0]->Piece("two.");
  v1::DecodeEnd end;
  end.add_images()->set_cache(v1::CACHE_TIER_LOCAL);
  decode_.calls[0]->End(absl::OkStatus(), end);
  EXPECT_TRUE(sink_.status.ok()) << sink_.status;
  EXPECT_EQ(sink_.texts,
            "[A picture could not be looked at; this answer was given without it.] one. two.");
  const v1::Receipt& receipt = sink_.response.receipt();
  ASSERT_EQ(receipt.degraded_size(), 1);
  EXPECT_EQ(receipt.degraded(0), "picture 1 was left out: nobody");
  ASSERT_EQ(receipt.images_size(), 2);
  EXPECT_EQ(receipt.images(0).cache(), v1::CACHE_TIER_UNSPECIFIED);
  EXPECT_EQ(receipt.images(1).cache(), v1::CACHE_TIER_COMPUTED);
}

// The picture was known, its record is gone everywhere, and nobody can make it again.
TEST_F(AnswerTest, APictureWhoseRowsCannotBeMadeAgainIsLeftOutToo) {
  v1::GenerateRequest request = Question({"a"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  const std::shared_ptr<Answer> answer = AskFor(request);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  decode_.calls.at(0)->NeedRows(0);
  vision_.calls.at(1)->Fail(VisionDown());
  EXPECT_TRUE(decode_.calls[0]->cancelled);
  ASSERT_EQ(decode_.calls.size(), 2u);
  EXPECT_EQ(decode_.calls[1]->start.images_size(), 0);
  decode_.calls[1]->Piece("text");
  decode_.calls[1]->End(absl::OkStatus());
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_TRUE(sink_.status.ok()) << sink_.status;
  EXPECT_EQ(sink_.response.receipt().degraded_size(), 1);
}

// Its numbers of pictures are others, and the rows of those may be there by then.
TEST_F(AnswerTest, WhatDecodeIsAskedAnewAsksForItselfUnderItsOwnNumbers) {
  v1::GenerateRequest request = Question({"a", "b", "c"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  const std::shared_ptr<Answer> answer = AskFor(request);
  for (int i = 0; i < 3; ++i) vision_.calls.at(i)->Ready(v1::CACHE_TIER_LOCAL);
  for (uint32_t i = 0; i < 3; ++i) decode_.calls.at(0)->NeedRows(i);
  vision_.calls.at(3)->Fail(VisionDown());  // "a": decode is asked about "b" and "c"
  ASSERT_EQ(decode_.calls.size(), 2u);
  ASSERT_EQ(decode_.calls[1]->start.images_size(), 2);
  decode_.calls[1]->NeedRows(0);
  vision_.calls.at(4)->Fail(VisionDown());  // "b", for the first
  EXPECT_TRUE(decode_.calls[1]->rows_ready.empty());
  vision_.calls.at(6)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(decode_.calls[1]->rows_ready, std::vector<uint32_t>{0});
  decode_.calls[1]->Piece("x");
  v1::DecodeEnd end;
  end.add_images()->set_cache(v1::CACHE_TIER_STORE);
  end.add_images()->set_cache(v1::CACHE_TIER_LOCAL);
  decode_.calls[1]->End(absl::OkStatus(), end);
  const v1::Receipt& receipt = sink_.response.receipt();
  EXPECT_EQ(receipt.images(0).cache(), v1::CACHE_TIER_UNSPECIFIED);
  EXPECT_EQ(receipt.images(1).cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(receipt.images(2).cache(), v1::CACHE_TIER_LOCAL);
}

// Another replica took over, and had the rows.
TEST_F(AnswerTest, WhatALostReplicaAskedForNeitherEndsTheAnswerNorIsInItsReceipt) {
  for (const bool text_only : {false, true}) {
    for (const bool made : {false, true}) {
      sink_ = RecordingSink();
      const size_t first = vision_.calls.size(), ask = decode_.calls.size();
      v1::GenerateRequest request = Question({absl::StrCat("a", text_only, made)});
      if (text_only) request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
      AskFor(request);
      vision_.calls.at(first)->Ready(v1::CACHE_TIER_LOCAL);
      const std::shared_ptr<testing::FakeDecodeClient::Stream> decode = decode_.calls.at(ask);
      decode->events->OnRouted({"r0:1", "affinity"});
      decode->NeedRows(0);
      decode->events->OnRouted({"r1:1", "first choice r0:1 is lost"});
      decode->Piece("one ");
      if (made) {
        vision_.calls.at(first + 1)->Ready(v1::CACHE_TIER_COMPUTED);
      } else {
        vision_.calls.at(first + 1)->Fail(VisionDown());
      }
      EXPECT_TRUE(decode->rows_ready.empty());
      EXPECT_FALSE(decode->cancelled);
      if (sink_.ends > 0 || decode_.calls.size() > ask + 1) continue;
      decode->Piece("answer");
      v1::DecodeEnd end;
      end.add_images()->set_cache(v1::CACHE_TIER_PREFIX_KV);
      decode->End(absl::OkStatus(), end);
      EXPECT_TRUE(sink_.status.ok()) << sink_.status;
      EXPECT_EQ(sink_.texts, "one answer");
      EXPECT_EQ(sink_.response.receipt().images(0).cache(), v1::CACHE_TIER_PREFIX_KV);
    }
  }
}

TEST_F(AnswerTest, NothingIsAskedAnewOnceSomethingWasTold) {
  v1::GenerateRequest request = Question({"a"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  AskFor(request);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  decode_.calls.at(0)->NeedRows(0);
  decode_.calls[0]->Piece("x");
  vision_.calls.at(1)->Fail(VisionDown());
  EXPECT_EQ(decode_.calls.size(), 1u);
  EXPECT_EQ(sink_.texts, "x");
  EXPECT_EQ(sink_.ends, 1);
  EXPECT_EQ(base::ReasonOf(sink_.status), "ROWS_MISSING");
}

// A piece that was on its way when decode was cancelled.
TEST_F(AnswerTest, WhatIsAskedAnewIsToldOnce) {
  v1::GenerateRequest request = Question({"a"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  AskFor(request);
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_LOCAL);
  decode_.calls.at(0)->NeedRows(0);
  const auto events = std::exchange(decode_.calls[0]->events, nullptr);
  vision_.calls.at(1)->Fail(VisionDown());
  EXPECT_TRUE(decode_.calls[0]->cancelled);
  v1::TextPiece piece;
  piece.set_text("with");
  EXPECT_TRUE(events->OnPiece(piece));
  events->OnDone(absl::CancelledError(""), {});
  ASSERT_EQ(decode_.calls.size(), 2u);
  decode_.calls[1]->Piece("without");
  decode_.calls[1]->End(absl::OkStatus());
  EXPECT_TRUE(sink_.status.ok()) << sink_.status;
  EXPECT_EQ(sink_.texts,
            "[A picture could not be looked at; this answer was given without it.] without");
}

TEST_F(AnswerTest, ABadPictureIsNotLeftOut) {
  v1::GenerateRequest request = Question({"a"});
  request.set_on_encoder_loss(v1::ENCODER_LOSS_TEXT_ONLY);
  const std::shared_ptr<Answer> answer = AskFor(request);
  vision_.calls.at(0)->Fail(base::BadField("image", "IMAGE_TRUNCATED", "cut"));
  EXPECT_EQ(base::ReasonOf(sink_.status), "IMAGE_TRUNCATED");
}

TEST_F(AnswerTest, QuestionsOfASessionOrAboutOnePictureHaveOneAffinity) {
  Ask({});
  EXPECT_EQ(decode_.calls.at(0)->affinity, "");
  v1::GenerateRequest request = Question({});
  request.set_session("s");
  const std::shared_ptr<Answer> with_session = AskFor(request);
  EXPECT_EQ(decode_.calls.at(1)->affinity, AffinityOf("", "s"));
  Ask({"a"});
  vision_.calls.at(0)->Ready(v1::CACHE_TIER_COMPUTED);
  Ask({"a", "b"});
  vision_.calls.at(1)->Ready(v1::CACHE_TIER_COMPUTED);
  EXPECT_FALSE(decode_.calls.at(2)->affinity.empty());
  EXPECT_EQ(decode_.calls.at(2)->affinity, decode_.calls.at(3)->affinity);
}

}  // namespace
}  // namespace tessera::gateway
