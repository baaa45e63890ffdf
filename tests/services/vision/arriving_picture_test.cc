#include "services/vision/arriving_picture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "tests/services/vision/image/pictures.h"

namespace tessera::vision {
namespace {

// One row for each patch of 16 pixels a side, of the picture as it is.
absl::StatusOr<ImagePlan> PlanByPatches(const ImageHeader& header) {
  ImagePlan plan;
  plan.grid_width = header.width / 16;
  plan.grid_height = header.height / 16;
  plan.rows = int64_t{plan.grid_width} * plan.grid_height;
  if (plan.rows == 0) return base::Error(absl::StatusCode::kInvalidArgument, "IMAGE_TOO_SMALL", "");
  return plan;
}

class ArrivingPictureTest : public ::testing::Test {
 protected:
  ArrivingPicture Offer(const std::string& picture, size_t held_bytes = 0) const {
    return ArrivingPicture({base::Sha256Of(picture), picture.size(), held_bytes}, limits_,
                           planner_);
  }
  static std::string Png(int width, int height, const std::string& exif = "") {
    return EncodePng(Scene(width, height, 1), exif);
  }
  // The same with its orientation behind the pixels.
  static std::string PngTurnedAtItsEnd(int width, int height) {
    std::string png = Png(width, height, ExifBlock(6, false));
    const size_t at = png.find("eXIf") - 4, bytes = 12 + ExifBlock(6, false).size();
    const std::string chunk = png.substr(at, bytes);
    png.erase(at, bytes);
    return png.insert(png.size() - 12, chunk);
  }

  ImageLimits limits_;
  RowPlanner planner_ = PlanByPatches;
};

TEST_F(ArrivingPictureTest, ThePlanFromAnyPiecesIsThatOfTheWhole) {
  const RgbImage scene = Scene(64, 48, 3);
  for (const std::string& bytes :
       {EncodePng(scene), EncodeJpeg(64, 48, scene.rgb),
        ReadFileOrDie(GoldensDirectory() + "/images_odd/webp_lossy.webp"),
        ReadFileOrDie(GoldensDirectory() + "/images_odd/bmp24.bmp")}) {
    ArrivingPicture whole = Offer(bytes);
    ASSERT_TRUE(whole.Append({bytes}).ok());
    ASSERT_TRUE(whole.plan() && whole.complete());
    for (const size_t piece : {1, 7, 100, 1000}) {
      SCOPED_TRACE(absl::StrCat(bytes.size(), " bytes in pieces of ", piece));
      ArrivingPicture picture = Offer(bytes);
      bool planned = false;
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_TRUE(picture.Append({absl::string_view(bytes).substr(at, piece)}).ok());
        EXPECT_TRUE(picture.plan() || !planned);
        planned = picture.plan().has_value();
        EXPECT_EQ(planned ? picture.plan()->rows : whole.plan()->rows, whole.plan()->rows);
      }
      EXPECT_TRUE(planned && picture.complete());
      EXPECT_EQ(picture.header().decode_bytes, whole.header().decode_bytes);
      EXPECT_EQ(picture.TakeBytes(), bytes);
    }
  }
}

TEST_F(ArrivingPictureTest, SeveralPiecesComeAtOnce) {
  const std::string png = Png(64, 64);
  ArrivingPicture picture = Offer(png);
  const absl::string_view view = png;
  ASSERT_TRUE(picture.Append({view.substr(0, 10), view.substr(10, 0), view.substr(10, 90)}).ok());
  EXPECT_TRUE(picture.plan());
  EXPECT_FALSE(picture.complete());
  EXPECT_EQ(picture.size(), 100u);
  ASSERT_TRUE(picture.Append({view.substr(100)}).ok());
  EXPECT_EQ(picture.TakeBytes(), png);
}

TEST_F(ArrivingPictureTest, OtherBytesThanOfferedAreAnError) {
  const std::string png = Png(64, 64);
  ArrivingPicture longer = Offer(png);
  EXPECT_EQ(base::ReasonOf(longer.Append({png, "x"})), "SIZE_MISMATCH");
  ArrivingPicture other = Offer(png);
  ASSERT_TRUE(other.Append({png.substr(0, png.size() - 1)}).ok());
  EXPECT_EQ(base::ReasonOf(other.Append({"x"})), "DIGEST_MISMATCH");
}

TEST_F(ArrivingPictureTest, ARefusalComesWithTheHeader) {
  const std::string png = Png(640, 480);
  limits_.max_side = 600;
  ArrivingPicture large = Offer(png);
  EXPECT_EQ(base::ReasonOf(large.Append({png.substr(0, 100)})), "IMAGE_TOO_LARGE");
  const std::string tiny = Png(8, 8);
  ArrivingPicture small = Offer(tiny);
  EXPECT_EQ(base::ReasonOf(small.Append({tiny.substr(0, 60)})), "IMAGE_TOO_SMALL")
      << "the planner's own";
  const std::string text(1000, 'x');
  ArrivingPicture no_picture = Offer(text);
  EXPECT_TRUE(no_picture.Append({"xxxx"}).ok());
  EXPECT_EQ(base::ReasonOf(no_picture.Append({text.substr(4, 20)})), "IMAGE_FORMAT");
}

TEST_F(ArrivingPictureTest, HeldBytesAreNeededOnlyWhereTheHeaderIsAmongThem) {
  const std::string png = Png(64, 64);
  ArrivingPicture planned = Offer(png, png.size() - 100);
  EXPECT_FALSE(planned.needs_held_bytes());
  ASSERT_TRUE(planned.Append({png.substr(0, 100)}).ok());
  EXPECT_FALSE(planned.needs_held_bytes());
  ArrivingPicture unplanned = Offer(png, png.size() - 10);
  ASSERT_TRUE(unplanned.Append({png.substr(0, 9)}).ok());
  EXPECT_FALSE(unplanned.needs_held_bytes()) << "another one comes by itself";
  ASSERT_TRUE(unplanned.Append({png.substr(9, 1)}).ok());
  EXPECT_TRUE(unplanned.needs_held_bytes());
  ASSERT_TRUE(unplanned.Append({png.substr(10)}).ok());
  EXPECT_FALSE(unplanned.needs_held_bytes());
  EXPECT_TRUE(Offer(png, png.size()).needs_held_bytes()) << "all are held";
}

// PNG may say at its end that its sides are exchanged.
TEST_F(ArrivingPictureTest, ARowCountThatMayTurnIsNotToldBeforeItIsSure) {
  const std::string square = PngTurnedAtItsEnd(64, 64), tall = PngTurnedAtItsEnd(64, 48);
  const size_t pixels_at = square.find("IDAT") + 20;
  ArrivingPicture sure = Offer(square);
  ASSERT_TRUE(sure.Append({square.substr(0, pixels_at)}).ok());
  EXPECT_TRUE(sure.plan()) << "as it turns, it has the same rows";
  ASSERT_TRUE(sure.Append({square.substr(pixels_at)}).ok());
  EXPECT_EQ(sure.header().orientation, 6);
  ArrivingPicture unsure = Offer(tall, tall.size() - pixels_at);
  ASSERT_TRUE(unsure.Append({tall.substr(0, pixels_at)}).ok());
  EXPECT_FALSE(unsure.plan());
  EXPECT_TRUE(unsure.needs_held_bytes());
  ASSERT_TRUE(unsure.Append({tall.substr(pixels_at)}).ok());
  ASSERT_TRUE(unsure.plan());
  EXPECT_EQ(unsure.plan()->grid_height, 4);
}

// A header that never ends, byte by byte: the looks at it have a bound.
TEST_F(ArrivingPictureTest, AHeaderIsNotReadAnewWithEachByte) {
  std::string jpeg = "\xFF\xD8";
  for (int i = 0; i < 8; ++i) {
    absl::StrAppend(&jpeg, "\xFF\xE1\xFF\xFF", std::string(0xFFFF - 2, 'x'));
  }
  for (const size_t held : {size_t{0}, jpeg.size()}) {
    ArrivingPicture picture = Offer(jpeg, held);
    for (size_t at = 0; at + 1 < jpeg.size(); ++at) {
      ASSERT_TRUE(picture.Append({absl::string_view(jpeg).substr(at, 1)}).ok());
      ASSERT_TRUE(picture.Append({}).ok());
    }
    EXPECT_EQ(base::ReasonOf(picture.Append({absl::string_view(jpeg).substr(jpeg.size() - 1)})),
              "IMAGE_CORRUPT");
  }
}

}  // namespace
}  // namespace tessera::vision
