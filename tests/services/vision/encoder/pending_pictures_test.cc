#include "services/vision/encoder/pending_pictures.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(3);

using Room = std::unique_ptr<PendingPictures::Room>;

TEST(PendingPicturesTest, RoomIsBoundedAndGivenBack) {
  PendingPictures all({.max_bytes = 10, .max_images = 4});
  Room first = *all.Reserve(6, "", kRetry);
  const Room second = *all.Reserve(4, "", kRetry);
  const absl::Status full = all.Reserve(1, "", kRetry).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_EQ(base::RetryOf(full), kRetry);
  first.reset();
  EXPECT_FALSE(all.Reserve(7, "", kRetry).ok());
  EXPECT_TRUE(all.Reserve(6, "", kRetry).ok());
}

TEST(PendingPicturesTest, AnySizeFindsRoomAlone) {
  PendingPictures all({.max_bytes = 10, .max_images = 4});
  for (const size_t bytes : {size_t{11}, std::numeric_limits<size_t>::max()}) {
    const Room alone = *all.Reserve(bytes, "", kRetry);
    EXPECT_FALSE(all.Reserve(1, "", kRetry).ok());
  }
  const Room small = *all.Reserve(1, "", kRetry);
  EXPECT_FALSE(all.Reserve(std::numeric_limits<size_t>::max(), "", kRetry).ok());
}

TEST(PendingPicturesTest, ATenantHasItsShareOfPicturesAndBytesAndOthersFindRoom) {
  PendingPictures all({.max_bytes = 100, .max_images = 4, .tenant_share = 0.5});
  const Room first = *all.Reserve(1, "a", kRetry);
  Room second = *all.Reserve(1, "a", kRetry);
  const absl::Status refused = all.Reserve(1, "a", kRetry).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused), "QUOTA_EXCEEDED");
  EXPECT_EQ(base::RetryOf(refused), kRetry);
  EXPECT_TRUE(all.Reserve(98, "b", kRetry).ok());  // alone of its tenant
  second.reset();
  EXPECT_EQ(base::ReasonOf(all.Reserve(50, "a", kRetry).status()), "QUOTA_EXCEEDED");
  EXPECT_TRUE(all.Reserve(49, "a", kRetry).ok());
}

TEST(PendingPicturesTest, WhoHasNoNameHasNoShare) {
  PendingPictures all({.max_bytes = 100, .max_images = 2, .tenant_share = 0.5});
  const Room first = *all.Reserve(1, "", kRetry), second = *all.Reserve(1, "", kRetry);
  EXPECT_TRUE(all.Reserve(98, "", kRetry).ok());
}

TEST(PendingPicturesTest, AShareOfNothingIsOnePicture) {
  PendingPictures all({.max_bytes = 100, .max_images = 1, .tenant_share = 0.1});
  Room first = *all.Reserve(100, "a", kRetry);
  EXPECT_FALSE(all.Reserve(1, "a", kRetry).ok());
  first.reset();
  EXPECT_TRUE(all.Reserve(1, "a", kRetry).ok());
}

}  // namespace
}  // namespace tessera::vision
