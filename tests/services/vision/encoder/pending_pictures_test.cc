#include "services/vision/encoder/pending_pictures.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

using Room = std::unique_ptr<PendingPictures::Room>;

TEST(PendingPicturesTest, RoomIsBoundedAndGivenBack) {
  PendingPictures all({.max_bytes = 10, .max_images = 4});
  Room first = *all.Reserve(6, "");
  const Room second = *all.Reserve(4, "");
  const absl::Status full = all.Reserve(1, "").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(full).has_value());
  first.reset();
  EXPECT_FALSE(all.Reserve(7, "").ok());
  EXPECT_TRUE(all.Reserve(6, "").ok());
}

TEST(PendingPicturesTest, AnySizeFindsRoomAlone) {
  PendingPictures all({.max_bytes = 10, .max_images = 4});
  for (const size_t bytes : {size_t{11}, std::numeric_limits<size_t>::max()}) {
    const Room alone = *all.Reserve(bytes, "");
    EXPECT_FALSE(all.Reserve(1, "").ok());
  }
  const Room small = *all.Reserve(1, "");
  EXPECT_FALSE(all.Reserve(std::numeric_limits<size_t>::max(), "").ok());
}

TEST(PendingPicturesTest, ATenantHasItsShareOfPicturesAndBytesAndOthersFindRoom) {
  PendingPictures all({.max_bytes = 100, .max_images = 4, .tenant_share = 0.5});
  const Room first = *all.Reserve(1, "a");
  Room second = *all.Reserve(1, "a");
  const absl::Status refused = all.Reserve(1, "a").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(refused), "QUOTA_EXCEEDED");
  EXPECT_TRUE(base::RetryOf(refused).has_value());
  EXPECT_TRUE(all.Reserve(98, "b").ok());  // alone of its tenant
  second.reset();
  EXPECT_EQ(base::ReasonOf(all.Reserve(50, "a").status()), "QUOTA_EXCEEDED");
  EXPECT_TRUE(all.Reserve(49, "a").ok());
}

TEST(PendingPicturesTest, WhoHasNoNameHasNoShare) {
  PendingPictures all({.max_bytes = 100, .max_images = 2, .tenant_share = 0.5});
  const Room first = *all.Reserve(1, ""), second = *all.Reserve(1, "");
  EXPECT_TRUE(all.Reserve(98, "").ok());
}

TEST(PendingPicturesTest, AShareOfNothingIsOnePicture) {
  PendingPictures all({.max_bytes = 100, .max_images = 1, .tenant_share = 0.1});
  Room first = *all.Reserve(100, "a");
  EXPECT_FALSE(all.Reserve(1, "a").ok());
  first.reset();
  EXPECT_TRUE(all.Reserve(1, "a").ok());
}

}  // namespace
}  // namespace tessera::vision
