#include "services/vision/encoder/jobs_in_flight.h"

#include <gtest/gtest.h>

#include <string>

#include "common/base/digest.h"
#include "common/base/error.h"
#include "tests/support/fake_clock.h"

namespace tessera::vision {
namespace {

using Place = EncodeJob::Place;

class JobsInFlightTest : public ::testing::Test {
 protected:
  // Null where it joined another; `answer` gets what the waiter is told.
  JobPtr Join(WaiterId waiter, const std::string& picture, absl::Status* answer = nullptr) {
    EncodeTask task;
    task.key = store::EmbeddingKey(base::Sha256Of(picture));
    task.room = *jobs_.Reserve(picture.size(), "");
    task.done = [answer](const absl::StatusOr<Encoded>& encoded) {
      if (answer != nullptr) *answer = encoded.status();
    };
    return *jobs_.Join(waiter, std::move(task));
  }
  static constexpr size_t kBytes = 8;

  testing::FakeClock clock_;
  JobsInFlight jobs_{{.max_bytes = kBytes, .max_images = 3}, clock_};
};

TEST_F(JobsInFlightTest, AWaiterOfAKeyInFlightGetsNoJobOfItsOwn) {
  absl::Status first = absl::UnknownError(""), second = first;
  const JobPtr job = Join(1, "a", &first);
  ASSERT_NE(job, nullptr);
  EXPECT_EQ(Join(2, "a", &second), nullptr);
  EXPECT_EQ(jobs_.pending(), 1);
  jobs_.Finish(job, absl::DataLossError("for both"), false);
  EXPECT_EQ(first.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(second.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(jobs_.pending(), 0);
  EXPECT_NE(Join(3, "a"), nullptr);
}

TEST_F(JobsInFlightTest, TheLastWaiterThatLeavesDropsTheJobUntilTheTowerHasIt) {
  for (const Place place : {Place::kPrepareQueue, Place::kPreparing, Place::kEncodeQueue}) {
    const JobPtr job = Join(1, "a");
    ASSERT_TRUE(jobs_.Move(*job, place));
    ASSERT_EQ(Join(2, "a"), nullptr);
    EXPECT_EQ(jobs_.Leave(1), nullptr);
    EXPECT_EQ(jobs_.Leave(2), job);
    EXPECT_EQ(jobs_.pending(), 1) << "somebody may have it in hand";
    EXPECT_FALSE(jobs_.Move(*job, Place::kEncoding));
    EXPECT_EQ(jobs_.pending(), 0);
  }
  const JobPtr job = Join(3, "a");
  ASSERT_TRUE(jobs_.Move(*job, Place::kEncoding));
  EXPECT_EQ(jobs_.Leave(3), nullptr);
  EXPECT_EQ(Join(4, "a"), nullptr) << "it joins";
}

TEST_F(JobsInFlightTest, ADroppedJobsPictureMayComeAgainAtOnce) {
  const JobPtr job = Join(1, "a");
  EXPECT_EQ(jobs_.Leave(1), job);
  const JobPtr again = Join(2, "a");
  ASSERT_NE(again, nullptr);
  EXPECT_FALSE(jobs_.Wanted(*job));
  EXPECT_TRUE(jobs_.Wanted(*again));
}

TEST_F(JobsInFlightTest, ReleaseGivesTheRoomBackOnce) {
  const JobPtr job = Join(1, std::string(kBytes, 'a'));
  EXPECT_FALSE(jobs_.Reserve(1, "").ok());
  jobs_.Release(*job);
  jobs_.Release(*job);
  EXPECT_EQ(jobs_.pending(), 0);
  EXPECT_TRUE(jobs_.Reserve(kBytes, "").ok());
}

TEST_F(JobsInFlightTest, StoppedJobsAreNotWantedAndTheirWaitersAreToldOnce) {
  absl::Status answer;
  const JobPtr job = Join(1, "a", &answer);
  jobs_.Stop();
  EXPECT_EQ(base::ReasonOf(answer), "DRAINING");
  EXPECT_FALSE(jobs_.Wanted(*job));
  EXPECT_EQ(jobs_.Leave(1), nullptr);
  EXPECT_EQ(base::ReasonOf(jobs_.Reserve(1, "").status()), "DRAINING");
  answer = absl::OkStatus();
  jobs_.Finish(job, absl::DataLossError("nobody hears it"), false);
  EXPECT_TRUE(answer.ok());
}

}  // namespace
}  // namespace tessera::vision
