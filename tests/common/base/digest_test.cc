#include "common/base/digest.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera::base {
namespace {

// FIPS 180-4, examples.
TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(ToHex(Sha256Of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256Of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesAreTheWhole) {
  Sha256 sha;
  sha.Update("a");
  Sha256 moved = std::move(sha);
  moved.Update("");
  moved.Update("bc");
  EXPECT_EQ(moved.Finish(), Sha256Of("abc"));
}

TEST(Sha256Test, FieldsDoNotRunTogether) {
  const auto digest = [](absl::string_view a, absl::string_view b) {
    Sha256 sha;
    sha.UpdateField(a);
    sha.UpdateField(b);
    return sha.Finish();
  };
  EXPECT_NE(digest("ab", "c"), digest("a", "bc"));
  EXPECT_NE(digest("", "a"), digest("a", ""));
  EXPECT_EQ(digest("a", "b"),
            Sha256Of(absl::string_view("\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0b", 18)));
}

// RFC 4231, test cases 1, 2 and 6.
TEST(HmacTest, KnownAnswers) {
  EXPECT_EQ(ToHex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(ToHex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(ToHex(HmacSha256(std::string(131, '\xaa'),
                             "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(HexTest, GoesThereAndBackAndRefusesTheRest) {
  const Sha256Digest digest = Sha256Of("x");
  EXPECT_EQ(*DigestFromHex(ToHex(digest)), digest);
  EXPECT_FALSE(DigestFromHex("").ok());
  EXPECT_FALSE(DigestFromHex(ToHex(digest) + "00").ok());
  std::string hex = ToHex(digest);
  hex[63] = 'g';
  EXPECT_FALSE(DigestFromHex(hex).ok());
}

TEST(ConstantTimeEqualTest, ComparesLengthAndEveryByte) {
  EXPECT_TRUE(ConstantTimeEqual("", ""));
  EXPECT_TRUE(ConstantTimeEqual("abc", "abc"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "abd"));
  EXPECT_FALSE(ConstantTimeEqual("abc", "ab"));
}

TEST(RandomBytesTest, HasTheLengthAndDiffers) {
  EXPECT_EQ(RandomBytes(0), "");
  EXPECT_EQ(RandomBytes(32).size(), 32u);
  EXPECT_NE(RandomBytes(32), RandomBytes(32));
}

}  // namespace
}  // namespace tessera::base
