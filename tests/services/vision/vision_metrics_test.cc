#include "services/vision/vision_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/metrics/names.h"
#include "tests/services/vision/vision_service_fixture.h"

namespace tessera::vision {
namespace {

using ::testing::HasSubstr;

TEST(VisionMetricsTest, EverySeriesIsThereAtZeroFromTheStart) {
  metrics::Metrics all("m");
  const VisionMetrics series(all);
  const std::string text = all.Text();
  for (const char* outcome :
       {"computed", "known", "invalid", "low_quality", "refused", "cancelled", "failed"}) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("tessera_vision_images_total{model_name=\"m\",outcome=\"",
                                       outcome, "\"} 0\n")));
  }
  for (const char* stage : {"queue", "decode", "quality", "preprocess", "encode", "store"}) {
    EXPECT_THAT(text,
                HasSubstr(absl::StrCat("stage_duration_seconds_count{model_name=\"m\",stage=\"",
                                       stage, "\"} 0\n")));
  }
  for (const char* line : {"tessera_vision_batches_total{model_name=\"m\"} 0\n",
                           "tessera_vision_batch_images_count{model_name=\"m\"} 0\n",
                           "tessera_vision_queued_images{model_name=\"m\"} 0\n",
                           "tessera_vision_rows_total{model_name=\"m\",kind=\"kept\"} 0\n",
                           "{model_name=\"m\",reason=\"none\",verdict=\"pass\"} 0\n",
                           "{model_name=\"m\",reason=\"small\",verdict=\"refuse\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(VisionMetricsTest, EveryReasonOfAVerdictCounts) {
  metrics::Metrics all("m");
  const VisionMetrics series(all);
  series.OnVerdict({Verdict::kPass, {}});
  series.OnVerdict({Verdict::kWarn, {"blur", "dark"}});
  series.OnVerdict({Verdict::kRefuse, {"dark", "no reason that there is"}});
  const auto count = [&](const char* verdict, const char* reason) {
    return all.GetCounter(metrics::kVisionQuality, {verdict, reason}).value();
  };
  EXPECT_EQ(count("pass", "none"), 1);
  EXPECT_EQ(count("warn", "blur"), 1);
  EXPECT_EQ(count("warn", "dark"), 1);
  EXPECT_EQ(count("refuse", "dark"), 1);
  EXPECT_EQ(count("refuse", "blur"), 0);
}

// What the service counts, call by call.
class VisionServiceMetricsTest : public VisionServiceTest {
 protected:
  double Images(const char* outcome) {
    return all_metrics_.GetCounter(metrics::kVisionImages, {outcome}).value();
  }
  double AllImages() {
    double sum = 0;
    for (const char* outcome :
         {"computed", "known", "invalid", "low_quality", "refused", "cancelled", "failed"}) {
      sum += Images(outcome);
    }
    return sum;
  }
  // Offers a picture, and sends this much of it once it is asked for.
  std::unique_ptr<grpc::ClientReaderWriter<v1::EncodeRequest, v1::EncodeResponse>> SendPart(
      grpc::ClientContext& context, const std::string& bytes, const std::string& part) {
    auto stream = stub_->Encode(&context);
    stream->Write(Offer(bytes));
    v1::EncodeResponse response;
    EXPECT_TRUE(stream->Read(&response) && response.has_need_bytes());
    v1::EncodeRequest chunk;
    chunk.set_chunk(part);
    stream->Write(chunk);
    return stream;
  }
};

TEST_F(VisionServiceMetricsTest, EveryCallHasOneOutcome) {
  gate_ = QualityGate(true, {});
  Start();
  EXPECT_TRUE(Run(Bmp(3, 100)).ready);
  EXPECT_TRUE(Run(Bmp(3, 100)).ready);
  EXPECT_TRUE(Run(Bmp(3, 101)).ready);
  EXPECT_FALSE(Run(Bmp(3, 1)).ready);  // black
  EXPECT_FALSE(Run("no picture").ready);
  EXPECT_FALSE(Run(Offer(""), {}).ready);
  Stop();  // the tower's thread reads its status
  tower_.status = absl::InternalError("the device failed");
  Start();
  EXPECT_FALSE(Run(Bmp(3, 102)).ready);
  Stop();
  EXPECT_EQ(Images("computed"), 2);
  EXPECT_EQ(Images("known"), 1);
  EXPECT_EQ(Images("low_quality"), 1);
  EXPECT_EQ(Images("invalid"), 2);
  EXPECT_EQ(Images("failed"), 1);
  EXPECT_EQ(AllImages(), 7);
  EXPECT_EQ(all_metrics_.GetCounter(metrics::kVisionQuality, {"pass", "none"}).value(), 3);
}

TEST_F(VisionServiceMetricsTest, WorkIsSeenWhileItWaitsAndCountedOnceDone) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  options_.max_pending_images = 1;
  Start();
  EXPECT_FALSE(pipeline_->stats().encoder_has_work);
  std::thread first([this] { EXPECT_TRUE(Run(Bmp(3, 'a')).ready); });
  gate.AwaitArrivals(1);
  const PipelineStats busy = pipeline_->stats();
  EXPECT_EQ(busy.pending_images, 1);
  EXPECT_TRUE(busy.encoder_has_work);
  EXPECT_EQ(busy.batches, 0);
  metrics_.Update(busy);
  EXPECT_EQ(all_metrics_.GetGauge(metrics::kVisionQueuedImages).value(), 1);
  EXPECT_EQ(Run(Bmp(3, 'b')).status.code(), absl::StatusCode::kResourceExhausted);
  gate.Open();
  first.join();
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
  const PipelineStats done = pipeline_->stats();
  EXPECT_EQ(done.pending_images, 0);
  EXPECT_EQ(done.batches, 1);
  Stop();
  EXPECT_EQ(Images("refused"), 1);
  EXPECT_EQ(all_metrics_.GetCounter(metrics::kVisionBatches).value(), 1);
  EXPECT_EQ(all_metrics_.GetCounter(metrics::kVisionRows, {"produced"}).value(), 1);
}

TEST_F(VisionServiceMetricsTest, ACallerThatLeavesIsCancelled) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Start();
  grpc::ClientContext context;
  const std::string bytes = Bmp(3, 'a');
  const auto stream = SendPart(context, bytes, bytes);
  gate.AwaitArrivals(1);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (Images("cancelled") == 0) std::this_thread::yield();  // the client knows it first
  gate.Open();
  Stop();
  EXPECT_EQ(Images("cancelled"), 1);
  EXPECT_EQ(AllImages(), 1);
}

TEST_F(VisionServiceMetricsTest, ACallerThatLeavesAmidItsPictureIsCancelledToo) {
  Start();
  grpc::ClientContext context;
  const std::string bytes = Bmp(3, 'a');
  const auto stream = SendPart(context, bytes, bytes.substr(0, bytes.size() - 1));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  Stop();
  EXPECT_EQ(Images("cancelled"), 1);
  EXPECT_EQ(AllImages(), 1);
}

TEST_F(VisionServiceMetricsTest, EachStageHasItsTime) {
  tower_.hook = [&] { clock_.Advance(absl::Seconds(4)); };
  const auto preprocess = steps_.preprocess;
  steps_.preprocess = [&, preprocess](const RgbImage& image) {
    auto prepared = preprocess(image);
    clock_.Advance(absl::Seconds(5));
    prepared->quality = absl::Seconds(2);
    return prepared;
  };
  Start();
  ASSERT_TRUE(Run(Bmp(3, 'a')).ready);
  ASSERT_TRUE(Run(Bmp(3, 'a')).ready);  // known: no stage
  Stop();
  const std::string text = all_metrics_.Text();
  for (const char* line :
       {"stage=\"encode\"} 4\n", "stage=\"preprocess\"} 3\n", "stage=\"quality\"} 2\n",
        "stage=\"queue\"} 0\n", "stage=\"store\"} 0\n", "stage=\"decode\"} 0\n"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat(
                          "tessera_vision_stage_duration_seconds_sum{model_name=\"m\",", line)));
  }
  EXPECT_THAT(text,
              HasSubstr("stage_duration_seconds_count{model_name=\"m\",stage=\"encode\"} 1\n"));
}

}  // namespace
}  // namespace tessera::vision
