#include "services/vision/encoder/encode_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/error.h"
#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(EncodePipelineTest, APictureBecomesARecordWithItsScores) {
  options_.record_dtype = DType::kF32;
  options_.preprocessing = "p";
  Start();
  const auto encoded = Submit("ab").get();
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_FALSE(encoded->existed);
  EXPECT_THAT(ToFloats(encoded->record->view()), ElementsAre(97, 0.5f));
  EXPECT_EQ(encoded->record->quality.at("sharpness"), 7);
  EXPECT_EQ(encoded->record->preprocessing, "p");
  ASSERT_THAT(store_.records(), SizeIs(1));
  EXPECT_EQ(store_.records()[0], encoded->record);
}

TEST_F(EncodePipelineTest, EqualKeysInFlightShareOneEncode) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Start();
  Answer first = Submit("ab");
  gate.AwaitArrivals(1);
  Answer second = Submit("ab"), third = Submit("ab");
  gate.Open();
  const auto a = first.get(), b = second.get(), c = third.get();
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(a->record, b->record);
  EXPECT_EQ(a->record, c->record);
  EXPECT_THAT(tower_.batches(), ElementsAre(1));
}

TEST_F(EncodePipelineTest, ARecordThatCameMeanwhileIsTaken) {
  Start();
  ASSERT_TRUE(Submit("ab").get().ok());
  const auto again = Submit("ab").get();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->existed);
  EXPECT_THAT(tower_.batches(), SizeIs(1));
}

TEST_F(EncodePipelineTest, CancellingOneOfTwoWaitersLeavesTheOther) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    gate.Pass();
    return decode(bytes, wanted);
  };
  Start();
  WaiterId id = 0;
  Answer first = Submit("ab", &id), second = Submit("ab");
  gate.AwaitArrivals(1);
  pipeline_->Cancel(id);
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kCancelled);
  gate.Open();
  EXPECT_TRUE(second.get().ok());
  EXPECT_THAT(tower_.batches(), ElementsAre(1));
}

TEST_F(EncodePipelineTest, CancellingTheLastWaiterDropsTheWork) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    if (bytes == "ab") gate.Pass();
    return decode(bytes, wanted);
  };
  const auto preprocess = steps_.preprocess;
  steps_.preprocess = [preprocess](const RgbImage& image) {
    EXPECT_EQ(image.height, 4) << "not next, but what nobody waits for";
    return preprocess(image);
  };
  Start();
  WaiterId first_id = 0, second_id = 0, queued_id = 0;
  Answer first = Submit("ab", &first_id), second = Submit("ab", &second_id);
  gate.AwaitArrivals(1);
  Answer queued = Submit("q", &queued_id);  // behind the only prepare thread
  pipeline_->Cancel(first_id);
  pipeline_->Cancel(second_id);
  pipeline_->Cancel(second_id);  // again: nothing
  pipeline_->Cancel(queued_id);
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queued.get().status().code(), absl::StatusCode::kCancelled);
  gate.Open();
  EXPECT_TRUE(Submit("next").get().ok());
  EXPECT_THAT(tower_.batches(), ElementsAre(1));
  EXPECT_THAT(store_.records(), SizeIs(1));
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
}

TEST_F(EncodePipelineTest, WhatTheTowerHasIsStoredThoughNobodyWaits) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Start();
  WaiterId id = 0;
  Answer first = Submit("ab", &id);
  gate.AwaitArrivals(1);
  pipeline_->Cancel(id);
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kCancelled);
  Answer second = Submit("ab");  // joins
  gate.Open();
  EXPECT_TRUE(second.get().ok());
  EXPECT_THAT(tower_.batches(), ElementsAre(1));
  EXPECT_THAT(store_.records(), SizeIs(1));
}

TEST_F(EncodePipelineTest, ABrokenPictureIsNotKeptAndTheNextOneWorks) {
  Start();
  const auto broken = Submit("broken").get();
  EXPECT_EQ(base::ReasonOf(broken.status()), "IMAGE_CORRUPT");
  EXPECT_THAT(store_.records(), IsEmpty());
  EXPECT_TRUE(Submit("ab").get().ok());
  EXPECT_EQ(base::ReasonOf(Submit("broken").get().status()), "IMAGE_CORRUPT");
}

TEST_F(EncodePipelineTest, AFullQueueIsSaidAtOnceWithATimeToRetry) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  options_.max_pending_images = 2;
  Start();
  Answer first = Submit("a"), second = Submit("b");
  absl::Status status;
  Submit("c", nullptr, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(status), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(status).has_value());
  Answer joined = Submit("a");  // takes no place
  gate.Open();
  EXPECT_TRUE(first.get().ok() && second.get().ok() && joined.get().ok());
  EXPECT_TRUE(Submit("c").get().ok());
}

TEST_F(EncodePipelineTest, TheTimeToRetryIsThatInWhichTheQueueDrains) {
  Gate first, second;
  Gate* gate = &first;
  int64_t begun = 0;
  tower_.hook = [&] {
    gate->Pass();
    // Those before have been counted at their own time.
    while (pipeline_->stats().pending_images > 4 - begun % 4) std::this_thread::yield();
    ++begun;
    clock_.Advance(absl::Seconds(2));
  };
  options_.max_batch_images = 1;
  options_.max_pending_images = 4;
  Start();
  std::vector<Answer> answers;
  for (const char* picture : {"a", "b", "c", "d"}) answers.push_back(Submit(picture));
  first.Open();
  for (Answer& answer : answers) EXPECT_TRUE(answer.get().ok());  // one in two seconds
  gate = &second;
  answers.clear();
  for (const char* picture : {"e", "f", "g", "h"}) answers.push_back(Submit(picture));
  absl::Status full;
  Submit("i", nullptr, &full);
  ASSERT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_EQ(base::RetryOf(full), absl::Seconds(10)) << "four that are pending, and this one";
  second.Open();
  for (Answer& answer : answers) EXPECT_TRUE(answer.get().ok());
}

TEST_F(EncodePipelineTest, BytesInTheQueueAreBounded) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  options_.max_pending_bytes = 5;
  Start();
  Answer first = Submit("larger than five");  // alone it may
  absl::Status status;
  Submit("x", nullptr, &status);
  EXPECT_EQ(base::ReasonOf(status), "QUEUE_FULL");
  gate.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(pipeline_->Reserve(5).ok());
}

TEST_F(EncodePipelineTest, AJoinersBytesAreLetGoAtOnce) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  options_.max_pending_bytes = 5;
  Start();
  Answer first = Submit("ab"), joined = Submit("ab");
  EXPECT_TRUE(pipeline_->Reserve(3).ok());
  EXPECT_FALSE(pipeline_->Reserve(4).ok());
  gate.Open();
  EXPECT_TRUE(first.get().ok() && joined.get().ok());
}

TEST_F(EncodePipelineTest, ADroppedPictureGivesItsBytesBack) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    gate.Pass();
    return decode(bytes, wanted);
  };
  options_.max_pending_bytes = 3;
  Start();
  WaiterId taken = 0, queued = 0;
  Answer first = Submit("ab", &taken);
  gate.AwaitArrivals(1);
  Answer second = Submit("c", &queued);
  pipeline_->Cancel(queued);
  EXPECT_TRUE(pipeline_->Reserve(1).ok());
  pipeline_->Cancel(taken);
  EXPECT_FALSE(pipeline_->Reserve(2).ok());  // the thread that has it reads them yet
  gate.Open();
  while (!pipeline_->Reserve(2).ok()) std::this_thread::yield();
  EXPECT_TRUE(Submit("abc").get().ok());
}

TEST_F(EncodePipelineTest, DrainWaitsForTheAcceptedAndRefusesTheNew) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Start();
  Answer first = Submit("ab");
  gate.AwaitArrivals(1);
  EXPECT_FALSE(pipeline_->Drain(clock_.Now()));
  absl::Status status;
  Submit("c", nullptr, &status);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(status), "DRAINING");
  gate.Open();
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
  EXPECT_EQ(first.wait_for(std::chrono::seconds(0)), std::future_status::ready);
}

TEST_F(EncodePipelineTest, WaitersLeftAtTheEndAreTold) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    gate.Pass();
    return decode(bytes, wanted);
  };
  Start();
  Answer first = Submit("ab"), second = Submit("cd");
  gate.AwaitArrivals(1);
  std::thread end([&] { pipeline_.reset(); });
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kUnavailable);
  gate.Open();
  end.join();
}

}  // namespace
}  // namespace tessera::vision
