// What the pipeline's threads do where a picture or the device is in trouble, or nobody waits.
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "common/base/error.h"
#include "common/metrics/names.h"
#include "common/store/memory_store.h"
#include "common/store/tiered_store.h"
#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

TEST_F(EncodePipelineTest, APictureThatIsDroppedWaitsForNoMemoryAndIsNotDecoded) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes) {
    EXPECT_EQ(bytes, "ab");
    gate.Pass();
    return decode(bytes);
  };
  options_.prepare_threads = 2;
  options_.max_decode_bytes = 19;  // each takes 10
  Start();
  Answer first = Submit("ab");
  gate.AwaitArrivals(1);
  EncodePipeline::WaiterId id = 0;
  Answer second = Submit("c", &id);
  while (store_.gets() < 2) std::this_thread::yield();  // a thread has it
  pipeline_->Cancel(id);
  const absl::Time patience = absl::Now() + absl::Seconds(20);
  while (pipeline_->stats().pending_images > 1 && absl::Now() < patience) {
    std::this_thread::yield();
  }
  EXPECT_EQ(pipeline_->stats().pending_images, 1);
  gate.Open();
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(pipeline_->Drain(absl::InfiniteFuture()));
}

// The caller has asked the whole store already.
TEST_F(EncodePipelineTest, OnlyMemoryIsLookedAtAgain) {
  store::MemoryStore front(1 << 20, all_metrics_);
  store::TieredStore store(front, store_, {}, all_metrics_);
  pipeline_ = std::make_unique<EncodePipeline>(options_, steps_,
                                               PipelineParts{tower_, store, clock_, metrics_});
  ASSERT_TRUE(Submit("ab").get().ok());
  const auto again = Submit("ab").get();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->existed);
  EXPECT_EQ(store_.gets(), 0);
  for (const char* result : {"hit", "miss"}) {
    EXPECT_EQ(all_metrics_.GetCounter(metrics::kEmbeddingCacheLookups, {"local", result}).value(),
              0);
  }
  pipeline_.reset();  // before the store
}

TEST_F(EncodePipelineTest, ADeviceThatFailsTimeAndAgainIsTold) {
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
TEST_F(EncodePipelineTest, ADeviceThatFailedIsTriedUntilItWorks) {
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
