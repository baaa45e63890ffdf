#include "services/vision/load_line.h"

#include <gtest/gtest.h>

namespace tessera::vision {
namespace {

TEST(LoadLineTest, TellsPicturesAndTheShareThatWasKnown) {
  const VisionAnswers before = {.known = 10, .computed = 100}, now = {.known = 13, .computed = 101};
  PipelineStats stats;
  stats.pending_images = 6;
  EXPECT_EQ(LoadLine(now, before, stats, absl::Seconds(10)),
            "pictures 0.4/s, pending 6, embedding hit 75.0 %");
}

TEST(LoadLineTest, WithoutAnAnswerOnlyWhatWaitsIsTold) {
  const VisionAnswers same = {.known = 10, .computed = 100};
  PipelineStats stats;
  EXPECT_EQ(LoadLine(same, same, stats, absl::Seconds(10)), std::nullopt);
  stats.pending_images = 1;
  EXPECT_EQ(LoadLine(same, same, stats, absl::Seconds(10)), "pictures 0.0/s, pending 1");
}

}  // namespace
}  // namespace tessera::vision
