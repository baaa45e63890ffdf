#include "services/decode/engine/row_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "tests/services/decode/engine/fake_engine.h"

namespace tessera::decode {
namespace {

using ::testing::ElementsAre;
using testing::FakeKey;
using testing::FakeRecord;
using ::testing::IsEmpty;
using testing::kFakeWidth;

// A prompt of three pictures of 2, 3 and 4 rows, each behind one token of text.
class RowWaitTest : public ::testing::Test {
 protected:
  static Sequence ThreePictures() {
    Sequence sequence;
    for (const int rows : {2, 3, 4}) {
      sequence.prompt.push_back(7);
      const int32_t first = sequence.prompt_tokens();
      sequence.pictures.push_back(
          {FakeKey(static_cast<uint8_t>(rows)), first, rows, "vision-" + std::to_string(rows)});
      sequence.prompt.insert(sequence.prompt.end(), rows, -1);
    }
    sequence.prompt.push_back(7);
    sequence.rows.resize(3);
    return sequence;
  }

  std::vector<int32_t> WantedPlaces() const {
    std::vector<int32_t> places;
    for (const WantedRows& wanted : wait_.Wanted(kFakeWidth)) places.push_back(wanted.picture);
    return places;
  }
  static WantedRows Found(WantedRows wanted, store::RecordPtr record) {
    wanted.rows = store::ToFloatRows(record);
    wanted.found = {std::move(record), RowTier::kStore};
    return wanted;
  }

  Sequence sequence_ = ThreePictures();
  RowWait wait_{sequence_};
};

TEST_F(RowWaitTest, WantsEveryPictureByKeyOriginAndShape) {
  const std::vector<WantedRows> wanted = wait_.Wanted(kFakeWidth);
  ASSERT_EQ(wanted.size(), 3u);
  EXPECT_EQ(wanted[1].picture, 1);
  EXPECT_EQ(wanted[1].record.key, FakeKey(3));
  EXPECT_EQ(wanted[1].record.origin, "vision-3");
  EXPECT_EQ(wanted[1].record.rows, 3);
  EXPECT_EQ(wanted[1].record.width, kFakeWidth);
}

TEST_F(RowWaitTest, WhatIsComputedIsNotWantedAndCameFromThePrefixCache) {
  sequence_.computed = sequence_.pictures[0].end_token();
  wait_.NoteShared();
  EXPECT_THAT(WantedPlaces(), ElementsAre(1, 2));
  EXPECT_EQ(wait_.outcomes()[0].tier, RowTier::kPrefixKv);
  EXPECT_EQ(wait_.outcomes()[1].tier, RowTier::kNone);
}

TEST_F(RowWaitTest, RowsThatWereReadAreTheSequencesAndTheirCostIsTold) {
  const store::RecordPtr record = FakeRecord(3, 3);
  ASSERT_TRUE(wait_.Take(Found(wait_.Wanted(kFakeWidth)[1], record)).ok());
  EXPECT_EQ(sequence_.rows[1].rows.data, record->data.data());
  EXPECT_NE(sequence_.rows[1].owner, nullptr);
  EXPECT_THAT(WantedPlaces(), ElementsAre(0, 2));
  const PictureOutcome outcome = wait_.outcomes()[1];
  EXPECT_EQ(outcome.tier, RowTier::kStore);
  EXPECT_EQ(outcome.rows, 3);
  EXPECT_EQ(outcome.bytes_moved, record->data.size());
  EXPECT_FALSE(wait_.awaits());
}

TEST_F(RowWaitTest, ARecordOfAnotherShapeIsRefusedWithBothShapes) {
  for (const store::RecordPtr& record : {FakeRecord(2, 5), FakeRecord(2, 2, kFakeWidth + 1)}) {
    const absl::Status status = wait_.Take(Found(wait_.Wanted(kFakeWidth)[0], record));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::ReasonOf(status), "ROWS_MISMATCH");
    EXPECT_THAT(status.message(), ::testing::HasSubstr("the reference says 2"));
  }
  EXPECT_FALSE(sequence_.rows[0].here());
  EXPECT_EQ(wait_.outcomes()[0].bytes_moved, 0u);
}

TEST_F(RowWaitTest, PicturesThatNobodyHasAreAwaitedUntilEachIsMade) {
  for (WantedRows& wanted : wait_.Wanted(kFakeWidth)) {
    if (wanted.picture == 1) continue;
    ASSERT_TRUE(wait_.Take(std::move(wanted)).ok());
  }
  EXPECT_THAT(wait_.awaited(), ElementsAre(0, 2));
  wait_.Made({2, 1, 3, -1});
  EXPECT_THAT(wait_.awaited(), ElementsAre(0));
  EXPECT_TRUE(wait_.awaits());
  wait_.Made({0});
  EXPECT_THAT(wait_.awaited(), IsEmpty());
  EXPECT_FALSE(wait_.awaits());
  EXPECT_THAT(WantedPlaces(), ElementsAre(0, 1, 2)) << "made is not read";
}

TEST_F(RowWaitTest, ThreeRoundsOfMakingRowsAreEnough) {
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(wait_.BeginRound().ok()) << round;
  const absl::Status status = wait_.BeginRound();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(status), "ROWS_MISSING");
}

}  // namespace
}  // namespace tessera::decode
