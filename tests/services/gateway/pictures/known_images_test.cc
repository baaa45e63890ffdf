#include "services/gateway/pictures/known_images.h"

#include <gtest/gtest.h>

namespace tessera::gateway {
namespace {

v1::ImageRef Ref(const std::string& fingerprint, uint32_t rows = 1) {
  v1::ImageRef ref;
  ref.set_vision_fingerprint(fingerprint);
  ref.set_rows(rows);
  return ref;
}

TEST(KnownImagesTest, FindsWhatItWasTold) {
  KnownImages known(2);
  known.Remember("t", base::Sha256Of("a"), Ref("f", 7));
  EXPECT_EQ((*known.Find("t", base::Sha256Of("a"), "f"))->rows(), 7u);
}

TEST(KnownImagesTest, TenantsShareNothing) {
  KnownImages known(2);
  known.Remember("t", base::Sha256Of("a"), Ref("f"));
  EXPECT_FALSE(known.Find("u", base::Sha256Of("a"), "f").has_value());
}

TEST(KnownImagesTest, ARefOfAnotherVisionServiceIsUnknown) {
  KnownImages known(2);
  known.Remember("t", base::Sha256Of("a"), Ref("old"));
  EXPECT_FALSE(known.Find("t", base::Sha256Of("a"), "new").has_value());
}

TEST(KnownImagesTest, LeastRecentlyUsedLeaves) {
  KnownImages known(2);
  known.Remember("", base::Sha256Of("a"), Ref("f"));
  known.Remember("", base::Sha256Of("b"), Ref("f"));
  EXPECT_TRUE(known.Find("", base::Sha256Of("a"), "f").has_value());
  known.Remember("", base::Sha256Of("c"), Ref("f"));
  EXPECT_EQ(known.size(), 2u);
  EXPECT_TRUE(known.Find("", base::Sha256Of("a"), "f").has_value());
  EXPECT_FALSE(known.Find("", base::Sha256Of("b"), "f").has_value());
}

TEST(KnownImagesTest, ARefusalIsForgottenAloneAndARefIsNot) {
  KnownImages known(3);
  known.Remember("", base::Sha256Of("a"), absl::InvalidArgumentError("cut"));
  known.Remember("", base::Sha256Of("b"), absl::InvalidArgumentError("cut"));
  known.Remember("", base::Sha256Of("c"), Ref("f"));
  for (const char* bytes : {"a", "c", "never"}) known.ForgetRefusal("", base::Sha256Of(bytes));
  EXPECT_FALSE(known.Find("", base::Sha256Of("a"), "f").has_value());
  EXPECT_FALSE(known.Find("", base::Sha256Of("b"), "f")->ok());
  EXPECT_TRUE(known.Find("", base::Sha256Of("c"), "f")->ok());
}

}  // namespace
}  // namespace tessera::gateway
