#include "tests/services/vision/image/pictures.h"

#include <malloc.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "common/base/digest.h"
#include "common/base/json.h"

// After <cstdio>, which it needs.
#include <jpeglib.h>

namespace tessera::vision {
namespace {

std::vector<std::string> Entries(const std::string& path, bool directories) {
  std::vector<std::string> names;
  if (!std::filesystem::is_directory(path)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_directory() == directories) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void AppendBytes(png_structp png, png_bytep data, png_size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(data), count);
}

int PngColorType(int channels) {
  constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                            PNG_COLOR_TYPE_RGB_ALPHA};
  return kTypes[channels - 1];
}

}  // namespace

std::string GoldensDirectory() {
  const char* directory = std::getenv("TESSERA_GOLDENS");
  return directory != nullptr ? directory : "tests/goldens";
}

std::string ReadFileOrDie(const std::string& path) {
  auto bytes = base::ReadFile(path);
  if (!bytes.ok()) std::fprintf(stderr, "%s\n", bytes.status().ToString().c_str());
  CHECK(bytes.ok());
  return *std::move(bytes);
}

bool FileExists(const std::string& path) { return std::filesystem::exists(path); }
std::vector<std::string> DirectoriesIn(const std::string& path) { return Entries(path, true); }
std::vector<std::string> FilesIn(const std::string& path) { return Entries(path, false); }

int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (absl::StartsWith(line, "VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  CHECK(false);
  return 0;
}

void ResetPeak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

RgbImage DecodeOrDie(absl::string_view bytes) {
  auto image = DecodeImage(bytes, ImageLimits());
  if (!image.ok()) std::fprintf(stderr, "%s\n", image.status().ToString().c_str());
  CHECK(image.ok());
  return *std::move(image);
}

std::string Sha256Hex(const RgbImage& image) {
  return base::ToHex(base::Sha256Of(
      absl::string_view(reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size())));
}

std::optional<Difference> Compare(const RgbImage& a, const RgbImage& b) {
  if (a.width != b.width || a.height != b.height) return std::nullopt;
  Difference difference;
  for (size_t i = 0; i < a.rgb.size(); ++i) {
    const int step = std::abs(int{a.rgb[i]} - int{b.rgb[i]});
    difference.largest = std::max(difference.largest, step);
    difference.mean += step;
  }
  difference.mean /= static_cast<double>(a.rgb.size());
  return difference;
}

RgbImage Filled(int width, int height, uint8_t red, uint8_t green, uint8_t blue) {
  RgbImage image;
  image.width = width;
  image.height = height;
  image.rgb.resize(static_cast<size_t>(width) * height * 3);
  for (size_t i = 0; i < image.rgb.size(); i += 3) {
    image.rgb[i] = red;
    image.rgb[i + 1] = green;
    image.rgb[i + 2] = blue;
  }
  return image;
}

RgbImage Scene(int width, int height, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  RgbImage image = Filled(width, height, 0, 0, 0);
  double wave[3][3];
  for (auto& channel : wave) {
    for (double& number : channel) number = uniform(random);
  }
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        const double u = static_cast<double>(x) / width;
        const double v = static_cast<double>(y) / height;
        const double phase = 9 * wave[c][0] * u + 7 * wave[c][1] * v + 6 * wave[c][2];
        image.rgb[(static_cast<size_t>(y) * width + x) * 3 + c] =
            static_cast<uint8_t>(128 + 100 * std::sin(phase) + 20 * std::sin(40 * u * v));
      }
    }
  }
  return image;
}

std::string EncodePng(int width, int height, const std::vector<uint8_t>& samples,
                      const PngOptions& options) {
  std::string out;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &out, AppendBytes, nullptr);
  png_set_IHDR(png, info, width, height, options.bits, PngColorType(options.channels),
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<uint8_t> exif(options.exif.begin(), options.exif.end());
  if (!exif.empty()) {
    png_set_eXIf_1(png, info, static_cast<png_uint_32>(exif.size()), exif.data());
  }
  png_write_info(png, info);
  const size_t row_bytes = static_cast<size_t>(width) * options.channels * (options.bits / 8);
  CHECK_EQ(samples.size(), row_bytes * height);
  for (int y = 0; y < height; ++y) png_write_row(png, samples.data() + y * row_bytes);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return out;
}

std::string EncodePng(const RgbImage& image, const std::string& exif) {
  PngOptions options;
  options.exif = exif;
  return EncodePng(image.width, image.height, image.rgb, options);
}

std::string EncodeJpeg(int width, int height, const std::vector<uint8_t>& samples,
                       const JpegOptions& options) {
  const bool four = options.color == JpegColor::kCmyk || options.color == JpegColor::kYcck;
  jpeg_compress_struct cinfo{};
  jpeg_error_mgr errors{};
  cinfo.err = jpeg_std_error(&errors);
  jpeg_create_compress(&cinfo);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&cinfo, &buffer, &size);
  cinfo.image_width = width;
  cinfo.image_height = height;
  cinfo.input_components = four ? 4 : 3;
  cinfo.in_color_space = four ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&cinfo);
  if (options.color == JpegColor::kYcck) jpeg_set_colorspace(&cinfo, JCS_YCCK);
  if (options.color == JpegColor::kCmyk && !options.adobe_marker) cinfo.write_Adobe_marker = FALSE;
  if (options.color == JpegColor::kYcc444) {
    cinfo.comp_info[0].h_samp_factor = cinfo.comp_info[0].v_samp_factor = 1;
  }
  jpeg_set_quality(&cinfo, options.quality, TRUE);
  jpeg_start_compress(&cinfo, TRUE);
  if (!options.exif.empty()) {
    const std::string block = std::string("Exif\0\0", 6) + options.exif;
    jpeg_write_marker(&cinfo, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(block.data()),
                      static_cast<unsigned>(block.size()));
  }
  const size_t row_bytes = static_cast<size_t>(width) * cinfo.input_components;
  CHECK_EQ(samples.size(), row_bytes * height);
  while (cinfo.next_scanline < cinfo.image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(samples.data() + cinfo.next_scanline * row_bytes);
    jpeg_write_scanlines(&cinfo, &row, 1);
  }
  jpeg_finish_compress(&cinfo);
  std::string out(reinterpret_cast<char*>(buffer), size);
  jpeg_destroy_compress(&cinfo);
  std::free(buffer);
  return out;
}

std::string ExifBlock(int orientation, bool big_endian) {
  std::string out = big_endian ? "MM" : "II";
  const auto put = [&](uint32_t value, int count) {
    for (int i = 0; i < count; ++i) {
      out.push_back(static_cast<char>(value >> (8 * (big_endian ? count - 1 - i : i))));
    }
  };
  put(42, 2);
  put(8, 4);       // IFD0
  put(1, 2);       // entries
  put(0x0112, 2);  // orientation
  put(3, 2);       // SHORT
  put(1, 4);
  put(static_cast<uint32_t>(orientation), 2);
  put(0, 2);
  put(0, 4);  // no further IFD
  return out;
}

RgbImage StoredFor(const RgbImage& upright, int orientation) {
  const bool swap = orientation >= 5;
  RgbImage stored =
      Filled(swap ? upright.height : upright.width, swap ? upright.width : upright.height, 0, 0, 0);
  for (int y = 0; y < stored.height; ++y) {
    for (int x = 0; x < stored.width; ++x) {
      const int right = stored.width - 1 - x;
      const int below = stored.height - 1 - y;
      // EXIF 2.3, tag 274: where row 0 and column 0 are seen.
      const int from[9][2] = {{},     {x, y},     {right, y},     {right, below}, {x, below},
                              {y, x}, {below, x}, {below, right}, {y, right}};
      const int* at = from[orientation];
      std::memcpy(&stored.rgb[(static_cast<size_t>(y) * stored.width + x) * 3],
                  &upright.rgb[(static_cast<size_t>(at[1]) * upright.width + at[0]) * 3], 3);
    }
  }
  return stored;
}

}  // namespace tessera::vision
