#include "services/vision/encoder/encoder_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

class EncoderThreadTest : public EncodePipelineTest {};

TEST_F(EncoderThreadTest, OnePicturesTroubleIsNotItsBatchMates) {
  Gate gate;
  bool first_call = true;
  tower_.hook = [&] {
    if (std::exchange(first_call, false)) gate.Pass();
  };
  tower_.status = absl::ResourceExhaustedError("no memory for so many");
  tower_.fails_from = 2;
  Start();
  Answer zero = Submit("0");
  gate.AwaitArrivals(1);
  Answer a = Submit("a"), b = Submit("b");
  gate.Open();
  EXPECT_TRUE(zero.get().ok());
  EXPECT_TRUE(a.get().ok());
  EXPECT_TRUE(b.get().ok());
}

TEST_F(EncoderThreadTest, PicturesOfOneShapeGoTogetherInTheirOrder) {
  Gate gate;
  bool first_call = true;
  tower_.hook = [&] {
    if (std::exchange(first_call, false)) gate.Pass();
  };
  Gate prepared;
  const auto preprocess = steps_.preprocess;
  steps_.preprocess = [&, preprocess](const RgbImage& image) {
    if (image.rgb[0] == 'z') prepared.Open();
    return preprocess(image);
  };
  options_.record_dtype = DType::kF32;
  options_.max_batch_images = 3;
  Start();
  std::vector<Answer> answers;
  answers.push_back(Submit("0"));
  gate.AwaitArrivals(1);
  for (const char* bytes : {"a", "bb", "c", "d", "e", "zz"}) answers.push_back(Submit(bytes));
  prepared.Pass();  // one thread prepares in order: all before "zz" are ready
  gate.Open();
  for (Answer& answer : answers) {
    const auto encoded = answer.get();
    ASSERT_TRUE(encoded.ok());
  }
  const auto batches = tower_.batches();
  EXPECT_EQ(batches[0], 1u);
  EXPECT_EQ(batches[1], 3u);  // a, c, d
  EXPECT_EQ(std::accumulate(batches.begin(), batches.end(), size_t{0}), 7u);
}

TEST_F(EncoderThreadTest, ADeviceThatFailsTimeAndAgainIsTold) {
  Start();
  tower_.status = absl::ResourceExhaustedError("no memory for it");
  for (const char* bytes : {"a", "b", "c"}) EXPECT_FALSE(Submit(bytes).get().ok());
  tower_.status = absl::InternalError("no device");
  for (const char* bytes : {"a", "b"}) EXPECT_FALSE(Submit(bytes).get().ok());
  EXPECT_TRUE(pipeline_->stats().health.ok());
  EXPECT_FALSE(Submit("c").get().ok());
  EXPECT_EQ(base::ReasonOf(pipeline_->stats().health), "DEVICE_FAILED");
  tower_.status = absl::OkStatus();
  EXPECT_TRUE(Submit("a").get().ok());
  EXPECT_TRUE(pipeline_->stats().health.ok());
  tower_.status = absl::InternalError("no device");
  EXPECT_FALSE(Submit("b").get().ok());
  EXPECT_TRUE(pipeline_->stats().health.ok()) << "the first again";
}

// Nobody sends it pictures any more, so nothing else would show that it is back.
TEST_F(EncoderThreadTest, ADeviceThatFailedIsTriedUntilItWorks) {
  Start();
  const auto await_batches = [this](int64_t count) {
    while (pipeline_->stats().batches < count) std::this_thread::yield();
  };
  tower_.status = absl::InternalError("no device");
  for (const char* bytes : {"a", "b", "c"}) EXPECT_FALSE(Submit(bytes).get().ok());
  EXPECT_FALSE(pipeline_->stats().health.ok());
  EXPECT_EQ(pipeline_->stats().batches, 3);
  clock_.Advance(options_.device_retry);
  await_batches(4);
  EXPECT_FALSE(pipeline_->stats().health.ok());
  tower_.status = absl::OkStatus();
  clock_.Advance(options_.device_retry);
  await_batches(5);
  EXPECT_TRUE(pipeline_->stats().health.ok());
  EXPECT_TRUE(Submit("a").get().ok());
}

}  // namespace
}  // namespace tessera::vision
