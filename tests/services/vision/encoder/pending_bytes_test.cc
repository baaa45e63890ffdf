#include "services/vision/encoder/pending_bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "common/base/error.h"

namespace tessera::vision {
namespace {

using Room = std::unique_ptr<PendingBytes::Room>;

TEST(PendingBytesTest, RoomIsBoundedAndGivenBack) {
  PendingBytes all(10);
  Room first = *all.Reserve(6);
  const Room second = *all.Reserve(4);
  const absl::Status full = all.Reserve(1).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::ReasonOf(full), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(full).has_value());
  first.reset();
  EXPECT_FALSE(all.Reserve(7).ok());
  EXPECT_TRUE(all.Reserve(6).ok());
}

TEST(PendingBytesTest, AnySizeFindsRoomAlone) {
  PendingBytes all(10);
  for (const size_t bytes : {size_t{11}, std::numeric_limits<size_t>::max()}) {
    const Room alone = *all.Reserve(bytes);
    EXPECT_FALSE(all.Reserve(1).ok());
  }
  const Room small = *all.Reserve(1);
  EXPECT_FALSE(all.Reserve(std::numeric_limits<size_t>::max()).ok());
}

}  // namespace
}  // namespace tessera::vision
