#include "services/gateway/pictures/image_source.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "common/base/error.h"

namespace tessera::gateway {
namespace {

PictureOptions SomeOptions() {
  PictureOptions options;
  options.handle_key = std::string(32, 'k');
  options.max_image_bytes = 1000;
  return options;
}

absl::StatusOr<Picture> Resolve(const v1::Image& image) {
  static const PictureOptions options = SomeOptions();
  return ResolveSource(image, "messages[0].parts[0].image", "", options,
                       absl::FromUnixSeconds(1'700'000'000));
}

v1::Image Uri(const std::string& uri) {
  v1::Image image;
  image.set_uri(uri);
  return image;
}

TEST(ImageSourceTest, InlineBytesAreNamedByTheirContent) {
  v1::Image image;
  image.mutable_inline_data()->set_mime_type("text/html");  // the bytes decide, later
  image.mutable_inline_data()->set_data("picture");
  const absl::StatusOr<Picture> picture = Resolve(image);
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_EQ(picture->digest, base::Sha256Of("picture"));
  EXPECT_EQ(*picture->bytes, "picture");
}

TEST(ImageSourceTest, DataUrlsWithWhiteSpaceNameOnePicture) {
  const std::string payload = absl::Base64Escape("a picture of a shelf");
  const std::string spaced = payload.substr(0, 5) + "\r\n " + payload.substr(5);
  const absl::StatusOr<Picture> plain = Resolve(Uri("data:image/png;base64," + payload));
  const absl::StatusOr<Picture> folded = Resolve(Uri("DATA:IMAGE/PNG;BASE64," + spaced));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(folded.ok()) << folded.status();
  EXPECT_EQ(plain->digest, folded->digest);
  EXPECT_EQ(*plain->bytes, "a picture of a shelf");
}

// Wherever it stands, also between what pads the end.
TEST(ImageSourceTest, WhiteSpaceChangesNoVerdict) {
  std::mt19937 random(7);
  constexpr char kCharacters[] = "ABCabc019+/== \n\t";
  for (int i = 0; i < 20'000; ++i) {
    std::string spaced, compact;
    for (size_t length = random() % 14; spaced.size() < length;) {
      spaced += kCharacters[random() % (sizeof(kCharacters) - 1)];
    }
    for (const char c : spaced) {
      if (!absl::ascii_isspace(static_cast<unsigned char>(c))) compact += c;
    }
    const absl::StatusOr<Picture> picture = Resolve(Uri("data:;base64," + spaced));
    const absl::StatusOr<Picture> same = Resolve(Uri("data:;base64," + compact));
    ASSERT_EQ(picture.status(), same.status()) << absl::CEscape(spaced);
    if (!picture.ok()) continue;
    EXPECT_EQ(*picture->bytes, *same->bytes) << absl::CEscape(spaced);
  }
}

TEST(ImageSourceTest, NoRoomIsKeptForWhiteSpace) {
  const absl::StatusOr<Picture> picture =
      Resolve(Uri("data:;base64," + std::string(100'000, ' ') + absl::Base64Escape("a picture")));
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_LT(picture->bytes->EstimatedMemoryUsage(), 200u);
}

TEST(ImageSourceTest, InlineBytesAreMovedNotCopied) {
  v1::Image image;
  image.mutable_inline_data()->set_data(std::string(900, 'x'));
  const char* const bytes = image.inline_data().data().data();
  const absl::StatusOr<Picture> picture =
      ResolveSource(std::move(image), "image", "", SomeOptions(), absl::UnixEpoch());
  ASSERT_TRUE(picture.ok()) << picture.status();
  EXPECT_EQ(picture->bytes->TryFlat()->data(), bytes);
}

TEST(ImageSourceTest, AcceptsTypesThatDoNotLieAboutBeingAnImage) {
  for (const char* head : {"data:;base64,", "data:image/gif;base64,", "data:;charset=x;base64,"}) {
    EXPECT_TRUE(Resolve(Uri(std::string(head) + "QUJD")).ok()) << head;
  }
}

TEST(ImageSourceTest, RefusesEverythingElseByName) {
  const std::pair<std::string, std::string> cases[] = {
      {"data:image/png;base64", "IMAGE_URL"},  // no comma
      {"data:image/png,QUJD", "IMAGE_URL"},    // not base64
      {"data:text/html;base64,QUJD", "IMAGE_URL"},
      {"data:image/png;base64,QU*D", "IMAGE_URL"},
      {"data:image/png;base64,QUJ-_w==", "IMAGE_URL"},  // the URL-safe alphabet
      {"data:image/png;base64,QUJDR", "IMAGE_URL"},     // cut
      {"data:image/png;base64,", "IMAGE_EMPTY"},
      {"http://127.0.0.1/x.png", "IMAGE_URL"},
      {"https://example.com/x.png", "IMAGE_URL"},
      {"file:///etc/passwd", "IMAGE_URL"},
      {"/etc/passwd", "IMAGE_URL"},
      {"../x.png", "IMAGE_URL"},
      {"", "IMAGE_URL"},
      {"data:image/png;base64," + std::string(4000, 'A'), "IMAGE_TOO_LARGE"},
  };
  for (const auto& [uri, reason] : cases) {
    const absl::Status status = Resolve(Uri(uri)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << uri;
    EXPECT_EQ(base::ReasonOf(status), reason) << uri.substr(0, 60);
    EXPECT_EQ(base::FieldOf(status), "messages[0].parts[0].image") << uri.substr(0, 60);
    EXPECT_LT(status.message().size(), 300u);
  }
}

TEST(ImageSourceTest, NoSourceAndTooManyBytesAreNamed) {
  EXPECT_EQ(base::ReasonOf(Resolve({}).status()), "IMAGE_MISSING");
  v1::Image image;
  image.mutable_inline_data()->set_data(std::string(1001, 'x'));
  const absl::Status status = Resolve(image).status();
  EXPECT_EQ(base::ReasonOf(status), "IMAGE_TOO_LARGE");
  EXPECT_NE(status.message().find("1000"), absl::string_view::npos);
}

TEST(ImageSourceTest, EqualHeadsDoNotShareADigest) {
  v1::Image a, b;
  a.mutable_inline_data()->set_data(std::string(900, 'x') + "1");
  b.mutable_inline_data()->set_data(std::string(900, 'x') + "2");
  EXPECT_NE(Resolve(a)->digest, Resolve(b)->digest);
}

}  // namespace
}  // namespace tessera::gateway
