#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "services/vision/image/image.h"
#include "tests/services/vision/image/pictures.h"

// Scans that cost time out of all proportion to their bytes. None of these pictures is decoded
// where it is refused.
namespace tessera::vision {
namespace {

constexpr int64_t kMostSamples = 1'000'000'000;
constexpr int kMostScans = 100;

uint8_t At(const std::string& bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

// A JPEG cut in front of its markers, but for those inside of entropy-coded bytes.
std::vector<std::string> Pieces(const std::string& jpeg) {
  std::vector<std::string> pieces = {jpeg.substr(0, 2)};
  for (size_t at = 2, begin = 2; at + 1 < jpeg.size();) {
    const uint8_t marker = At(jpeg, at + 1);
    if (At(jpeg, at) != 0xff || marker == 0 || (marker >= 0xd0 && marker <= 0xd7)) {
      ++at;
      continue;
    }
    if (at > begin) pieces.push_back(jpeg.substr(begin, at - begin));
    begin = at;
    at += marker == 0xd9 ? 2 : 2 + (At(jpeg, at + 2) << 8 | At(jpeg, at + 3));
    if (marker == 0xd9) pieces.push_back(jpeg.substr(begin));
  }
  return pieces;
}

// A progressive picture that says to be of other sides, and scans of it again and again.
class ManyScans {
 public:
  ManyScans()
      : pieces_(Pieces(ReadFileOrDie(GoldensDirectory() + "/images_odd/jpeg_progressive.jpg"))) {
    for (const std::string& piece : pieces_) {
      if (At(piece, 1) == 0xc2) frame_ = piece;
      if (At(piece, 1) == 0xda) scans_.push_back(piece);
    }
  }
  size_t scans() const { return scans_.size(); }

  // Its own scans, then `copies`, each the number of a scan.
  std::string Make(int width, int height, const std::vector<size_t>& copies) const {
    std::string out;
    for (std::string piece : pieces_) {
      if (At(piece, 1) == 0xd9) {
        for (const size_t copy : copies) out += scans_[copy];
      }
      if (At(piece, 1) == 0xc2) {
        piece[5] = static_cast<char>(height >> 8);
        piece[6] = static_cast<char>(height);
        piece[7] = static_cast<char>(width >> 8);
        piece[8] = static_cast<char>(width);
      }
      out += piece;
    }
    return out;
  }
  // Samples of a scan of one pixel, by the frame's sampling factors.
  double SamplesOf(size_t scan) const {
    double samples = 0, full = 1;
    for (int c = 0; c < At(frame_, 9); ++c) {
      const uint8_t factors = At(frame_, 11 + 3 * static_cast<size_t>(c));
      full = std::max(full, static_cast<double>((factors >> 4) * (factors & 15)));
    }
    for (int i = 0; i < At(scans_[scan], 4); ++i) {
      for (int c = 0; c < At(frame_, 9); ++c) {
        const size_t component = 10 + 3 * static_cast<size_t>(c);
        if (At(frame_, component) != At(scans_[scan], 5 + 2 * static_cast<size_t>(i))) continue;
        const uint8_t factors = At(frame_, component + 1);
        samples += (factors >> 4) * (factors & 15) / full;
      }
    }
    return samples;
  }

 private:
  const std::vector<std::string> pieces_;
  std::vector<std::string> scans_;
  std::string frame_;
};

absl::Status Decode(const std::string& bytes) {
  ImageLimits limits;
  limits.max_decode_bytes = size_t{2} << 30;  // so that it is for the scans alone
  return DecodeImage(bytes, limits).status();
}

TEST(JpegScans, TheLargestPictureWithTheScansThatProgramsWriteIsNotRefusedForThem) {
  const ManyScans many;
  double samples = 0;
  for (size_t i = 0; i < many.scans(); ++i) samples += many.SamplesOf(i);
  EXPECT_GE(many.scans(), 6u);
  EXPECT_LT(samples * static_cast<double>(ImageLimits().max_pixels), kMostSamples);
}

TEST(JpegScans, AHundredScansOfALargePictureAreRefusedUnread) {
  const ManyScans many;
  const std::string bomb = many.Make(8000, 8000, std::vector<size_t>(80, many.scans() - 1));
  const absl::Status status = Decode(bomb);
  EXPECT_EQ(base::ReasonOf(status), "IMAGE_TOO_COMPLEX") << status;
  EXPECT_TRUE(absl::IsInvalidArgument(status));
}

TEST(JpegScans, AnyScansOfAnyPictureAreRefusedExactlyBeyondTheLimits) {
  const ManyScans many;
  double own = 0;
  for (size_t i = 0; i < many.scans(); ++i) own += many.SamplesOf(i);
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    const bool large = random() % 2 == 0;
    const int side = static_cast<int>(large ? 4000 + random() % 4000 : 16 + random() % 48);
    std::vector<size_t> copies(random() % 120);
    double samples = own;
    for (size_t& copy : copies) samples += many.SamplesOf(copy = random() % many.scans());
    const double all = samples * side * side;
    const bool beyond = all > kMostSamples || many.scans() + copies.size() > kMostScans;
    if (large && !beyond) continue;  // it would be decoded
    refused += beyond;
    const std::string reason = base::ReasonOf(Decode(many.Make(side, side, copies)));
    EXPECT_EQ(reason == "IMAGE_TOO_COMPLEX", beyond) << side << " " << copies.size() << reason;
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace tessera::vision
