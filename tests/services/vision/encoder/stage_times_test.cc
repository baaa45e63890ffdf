#include "services/vision/encoder/stage_times.h"

#include <gtest/gtest.h>

#include "tests/services/vision/encoder/pipeline_fixture.h"

namespace tessera::vision {
namespace {

// A delay planted in one stage appears in exactly its field ---

class StageTimesTest : public EncodePipelineTest {
 protected:
  void ExpectOnly(const StageTimes& times, Stage stage, absl::Duration expected) {
    for (const Stage any : {Stage::kQueue, Stage::kFetch, Stage::kImageDecode, Stage::kPreprocess,
                            Stage::kEncode, Stage::kStore}) {
      EXPECT_EQ(times[any], any == stage ? expected : absl::ZeroDuration())
          << static_cast<int>(any);
    }
  }
};

TEST_F(StageTimesTest, ImageDecode) {
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    clock_.Advance(absl::Seconds(3));
    return decode(bytes, wanted);
  };
  Start();
  ExpectOnly(Submit("ab").get()->stages, Stage::kImageDecode, absl::Seconds(3));
  EXPECT_EQ(store_.last_cost(), absl::Seconds(3));
}

TEST_F(StageTimesTest, Preprocess) {
  const auto preprocess = steps_.preprocess;
  steps_.preprocess = [&, preprocess](const RgbImage& image) {
    clock_.Advance(absl::Seconds(4));
    return preprocess(image);
  };
  Start();
  ExpectOnly(Submit("ab").get()->stages, Stage::kPreprocess, absl::Seconds(4));
}

TEST_F(StageTimesTest, Encode) {
  tower_.hook = [&] { clock_.Advance(absl::Seconds(5)); };
  Start();
  ExpectOnly(Submit("ab").get()->stages, Stage::kEncode, absl::Seconds(5));
}

TEST_F(StageTimesTest, StoreAndFetch) {
  store_.clock = &clock_;
  store_.put_takes = absl::Seconds(6);
  Start();
  ExpectOnly(Submit("ab").get()->stages, Stage::kStore, absl::Seconds(6));
  pipeline_.reset();
  store_.get_takes = absl::Seconds(2);
  Start();
  const auto found = Submit("ab").get();
  EXPECT_TRUE(found->existed);
  ExpectOnly(found->stages, Stage::kFetch, absl::Seconds(2));
}

TEST_F(StageTimesTest, QueueAndWhatALateJoinerSaw) {
  Gate gate;
  tower_.hook = [&] { gate.Pass(); };
  Gate third_is_decoded;
  const auto decode = steps_.decode;
  steps_.decode = [&, decode](absl::string_view bytes, const StillWanted& wanted) {
    if (bytes == "ccc") third_is_decoded.Open();
    return decode(bytes, wanted);
  };
  Start();
  Answer first = Submit("a");
  gate.AwaitArrivals(1);
  Answer second = Submit("bb"), third = Submit("ccc");
  third_is_decoded.Pass();  // so the only prepare thread has handed "bb" to the busy tower
  clock_.Advance(absl::Seconds(7));
  Answer joiner = Submit("a");
  clock_.Advance(absl::Seconds(1));
  gate.Open();
  ExpectOnly(first.get()->stages, Stage::kEncode, absl::Seconds(8));
  ExpectOnly(joiner.get()->stages, Stage::kEncode, absl::Seconds(1));
  ExpectOnly(second.get()->stages, Stage::kQueue, absl::Seconds(8));
  EXPECT_TRUE(third.get().ok());
}

}  // namespace
}  // namespace tessera::vision
