#include "services/vision/encoder/prepare_stage.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "common/metrics/names.h"
#include "common/store/memory_store.h"
#include "common/store/tiered_store.h"
#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

class PrepareStageTest : public EncodePipelineTest {};

TEST_F(PrepareStageTest, APictureThatIsDroppedWaitsForNoMemoryAndIsNotDecoded) {
  Gate gate;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    EXPECT_EQ(bytes, "ab");
    gate.Pass();
    return decode(bytes, wanted);
  };
  options_.prepare_threads = 2;
  options_.max_decode_bytes = 19;  // each takes 10
  Start();
  Answer first = Submit("ab");
  gate.AwaitArrivals(1);
  WaiterId id = 0;
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
TEST_F(PrepareStageTest, OnlyMemoryIsLookedAtAgain) {
  store::MemoryStore front(1 << 20, all_metrics_);
  store::TieredStore store(front, store_, {}, all_metrics_);
  pipeline_ = std::make_unique<EncodePipeline>(options_, steps_,
                                               PipelineDeps{tower_, store, clock_, metrics_});
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

TEST_F(PrepareStageTest, DecodersShareABudgetOfMemory) {
  base::Mutex mutex;
  int running = 0, most = 0;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    {
      base::MutexLock lock(mutex);
      most = std::max(most, ++running);
    }
    auto image = decode(bytes, wanted);
    base::MutexLock lock(mutex);
    --running;
    return image;
  };
  options_.prepare_threads = 4;
  options_.max_decode_bytes = 19;  // each takes 10
  Start();
  std::vector<Answer> answers;
  for (char c = 'a'; c < 'm'; ++c) answers.push_back(Submit(std::string(1, c)));
  for (Answer& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(most, 1);
}

}  // namespace
}  // namespace tessera::vision
