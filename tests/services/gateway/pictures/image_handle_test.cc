#include "services/gateway/pictures/image_handle.h"

#include <gtest/gtest.h>

#include "common/base/error.h"

namespace tessera::gateway {
namespace {

constexpr char kKey[] = "0123456789abcdef0123456789abcdef";
const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

ImageHandle SomeHandle() { return {base::Sha256Of("a picture"), kNow + absl::Minutes(5)}; }

TEST(ImageHandleTest, ComesBackAsItWasSigned) {
  const std::string text = SignHandle(SomeHandle(), "shop", kKey);
  const absl::StatusOr<ImageHandle> handle = VerifyHandle(text, "shop", kKey, kNow);
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(handle->digest, SomeHandle().digest);
  EXPECT_EQ(handle->expiry, SomeHandle().expiry);
}

TEST(ImageHandleTest, AnotherTenantsHandleIsUnknown) {
  const std::string text = SignHandle(SomeHandle(), "shop", kKey);
  const absl::Status status = VerifyHandle(text, "rival", kKey, kNow).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(base::ReasonOf(status), "IMAGE_HANDLE_UNKNOWN");
  EXPECT_EQ(base::ResourceOf(status).first, "image_handle");
}

TEST(ImageHandleTest, TenantAndBodyDoNotRunTogether) {
  EXPECT_NE(SignHandle(SomeHandle(), "a", kKey), SignHandle(SomeHandle(), "b", kKey));
  EXPECT_FALSE(VerifyHandle(SignHandle(SomeHandle(), "", kKey), "a", kKey, kNow).ok());
}

TEST(ImageHandleTest, IsOverAtItsExpiry) {
  const std::string text = SignHandle(SomeHandle(), "shop", kKey);
  const absl::Status status = VerifyHandle(text, "shop", kKey, SomeHandle().expiry).status();
  EXPECT_EQ(base::ReasonOf(status), "IMAGE_EXPIRED");
}

TEST(ImageHandleTest, EveryChangedCharacterIsRefused) {
  const std::string text = SignHandle(SomeHandle(), "shop", kKey);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string forged = text;
    forged[i] = forged[i] == 'A' ? 'B' : 'A';
    EXPECT_FALSE(VerifyHandle(forged, "shop", kKey, kNow).ok()) << i;
  }
}

TEST(ImageHandleTest, WhatIsNoHandleIsUnknown) {
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("/etc/passwd"), std::string(300, 'A'),
        std::string(96, 'A'), std::string("\xff\xfe", 2)}) {
    EXPECT_EQ(base::ReasonOf(VerifyHandle(text, "", kKey, kNow).status()), "IMAGE_HANDLE_UNKNOWN");
  }
}

}  // namespace
}  // namespace tessera::gateway
