#include "common/flags/nearest.h"

#include <gtest/gtest.h>

namespace tessera::flags {
namespace {

TEST(NearestTest, IsATypoOrNothing) {
  EXPECT_EQ(Nearest("imgae", {"rate", "images"}), std::nullopt);
  EXPECT_EQ(Nearest("thread", {"rate", "threads"}), "threads");
  EXPECT_EQ(Nearest("x", {}), std::nullopt);
}

}  // namespace
}  // namespace tessera::flags
