#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "services/vision/image/image.h"

// Pictures for tests: encoders that write what a test needs, and where the goldens are. A failure
// here is a bug of the test and aborts.
namespace tessera::vision {

// TESSERA_GOLDENS, or tests/goldens.
std::string GoldensDirectory();
std::string ReadFileOrDie(const std::string& path);
bool FileExists(const std::string& path);
// Names of the directories in `path`, sorted.
std::vector<std::string> DirectoriesIn(const std::string& path);
// Names of the plain files in `path`, sorted.
std::vector<std::string> FilesIn(const std::string& path);

// Peak resident bytes of this process since ResetPeak.
int64_t PeakResidentBytes();
void ResetPeak();

// Decodes with default limits.
RgbImage DecodeOrDie(absl::string_view bytes);
std::string Sha256Hex(const RgbImage& image);
// Largest and mean absolute difference of two pictures of one size; nullopt for different sizes.
struct Difference {
  int largest = 0;
  double mean = 0;
};
std::optional<Difference> Compare(const RgbImage& a, const RgbImage& b);

RgbImage Filled(int width, int height, uint8_t red, uint8_t green, uint8_t blue);
// Smooth gradients with some structure; another for each seed.
RgbImage Scene(int width, int height, uint32_t seed);

struct PngOptions {
  int channels = 3;  // 1 grey, 2 grey + alpha, 3, 4
  int bits = 8;      // 8, or 16 (samples big-endian)
  std::string exif;  // eXIf chunk, when not empty
};
// `samples`: [height, width, channels] in the depth of the options.
std::string EncodePng(int width, int height, const std::vector<uint8_t>& samples,
                      const PngOptions& options = {});
std::string EncodePng(const RgbImage& image, const std::string& exif = "");

enum class JpegColor { kYcc420, kYcc444, kCmyk, kYcck };
struct JpegOptions {
  JpegColor color = JpegColor::kYcc444;
  int quality = 95;
  bool adobe_marker = true;  // CMYK only
  std::string exif;          // APP1, when not empty
};
// `samples`: [height, width, 3], or [.., 4] CMYK as stored (255: no ink).
std::string EncodeJpeg(int width, int height, const std::vector<uint8_t>& samples,
                       const JpegOptions& options = {});

// An EXIF block (TIFF stream) with nothing but this orientation.
std::string ExifBlock(int orientation, bool big_endian);

// What a file stores so that `orientation` brings it upright again.
RgbImage StoredFor(const RgbImage& upright, int orientation);

}  // namespace tessera::vision
