#include "services/vision/image/orient.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tessera::vision {
namespace {

void MirrorColumns(RgbImage& image) {
  const int64_t row_bytes = int64_t{image.width} * 3;
  for (int y = 0; y < image.height; ++y) {
    uint8_t* row = image.rgb.data() + y * row_bytes;
    for (int left = 0, right = image.width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + left * 3, row + left * 3 + 3, row + right * 3);
    }
  }
}

void MirrorRows(RgbImage& image) {
  const int64_t row_bytes = int64_t{image.width} * 3;
  for (int top = 0, bottom = image.height - 1; top < bottom; ++top, --bottom) {
    uint8_t* row = image.rgb.data() + top * row_bytes;
    std::swap_ranges(row, row + row_bytes, image.rgb.data() + bottom * row_bytes);
  }
}

// Rows become columns, in blocks that fit the first-level cache.
RgbImage Transpose(const RgbImage& in) {
  constexpr int kBlock = 32;
  RgbImage out;
  out.width = in.height;
  out.height = in.width;
  out.rgb.resize(in.rgb.size());
  for (int y0 = 0; y0 < in.height; y0 += kBlock) {
    for (int x0 = 0; x0 < in.width; x0 += kBlock) {
      for (int y = y0; y < std::min(in.height, y0 + kBlock); ++y) {
        const uint8_t* from = in.rgb.data() + (int64_t{y} * in.width + x0) * 3;
        for (int x = x0; x < std::min(in.width, x0 + kBlock); ++x, from += 3) {
          std::copy(from, from + 3, out.rgb.data() + (int64_t{x} * out.width + y) * 3);
        }
      }
    }
  }
  return out;
}

}  // namespace

RgbImage Orient(RgbImage stored, int orientation) {
  RgbImage image = SwapsSides(orientation) ? Transpose(stored) : std::move(stored);
  // EXIF 2.3, table of tag 274, after the transposition of 5 to 8.
  if (orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7) {
    MirrorColumns(image);
  }
  if (orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8) {
    MirrorRows(image);
  }
  return image;
}

}  // namespace tessera::vision
