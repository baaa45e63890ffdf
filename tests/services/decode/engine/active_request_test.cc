#include "services/decode/engine/active_request.h"

#include <gtest/gtest.h>

#include <utility>

#include "common/base/error.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {
namespace {

using testing::FakeRecord;
using testing::PictureRequest;

constexpr absl::Time kArrival = absl::UnixEpoch();

absl::Time At(int seconds) { return kArrival + absl::Seconds(seconds); }

Request OnePicture() {
  Request request = PictureRequest({FakeRecord(1, 3)}, 4, 5, 1, nullptr);
  request.arrival = kArrival;
  request.deadline = At(60);
  return request;
}

TEST(ActiveRequestTest, TheIdsOfAPromptAreTakenNotCopied) {
  Request request = OnePicture();
  const int32_t* const ids = request.ids.data();
  const ActiveRequest active(1, std::move(request), 5);
  EXPECT_EQ(active.sequence.prompt.data(), ids);
  EXPECT_EQ(active.sequence.prompt_tokens(), 7);
  EXPECT_EQ(active.image_tokens(), 3);
}

TEST(ActiveRequestTest, WaitsAreCountedUntilTheFirstStepAndTheQueueIsWhatIsLeft) {
  ActiveRequest active(1, OnePicture(), 5);
  active.BeginWait(Stage::kFetch, At(1));
  EXPECT_TRUE(active.outside());
  active.EndWait(At(3));
  active.BeginWait(Stage::kRows, At(3));
  active.EndWait(At(7));
  active.BeginWait(Stage::kFetch, At(7));
  active.EndWait(At(8));
  EXPECT_FALSE(active.outside());
  active.first_step = At(10);
  active.BeginWait(Stage::kFetch, At(11));  // its rows have gone: part of the prefill
  active.EndWait(At(20));
  const Outcome outcome = active.OutcomeAt(At(30));
  EXPECT_EQ(outcome.fetch, absl::Seconds(3));
  EXPECT_EQ(outcome.first_fetch, At(1));
  EXPECT_EQ(outcome.queue, absl::Seconds(10 - 3 - 4));
  EXPECT_EQ(outcome.prefill, absl::Seconds(20));
  EXPECT_EQ(outcome.pictures.size(), 1u);
}

TEST(ActiveRequestTest, TheDeadlineNamesTheStageThatItPassedIn) {
  ActiveRequest active(1, OnePicture(), 5);
  EXPECT_EQ(base::ReasonOf(active.ExpiredAt(At(60))), "DEADLINE_IN_QUEUE");
  active.BeginWait(Stage::kRows, At(2));
  const absl::Status status = active.ExpiredAt(At(60));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(base::ReasonOf(status), "DEADLINE_IN_ROWS");
}

TEST(ActiveRequestTest, WhoseReaderStandsStillExpiresBeforeTheDeadline) {
  ActiveRequest active(1, OnePicture(), 5);
  EXPECT_EQ(active.Expiry(absl::Seconds(10)), At(60));
  active.paused_since = At(5);
  EXPECT_EQ(active.Expiry(absl::Seconds(10)), At(15));
  const absl::Status status = active.ExpiredAt(At(15));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(status), "SLOW_CLIENT");
}

}  // namespace
}  // namespace tessera::decode
