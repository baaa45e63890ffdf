#include "services/vision/preprocess/preprocess.h"

#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "services/vision/preprocess/geometry.h"

namespace tessera::vision {
namespace {

constexpr int kChannels = 3;

// Rows of the padded picture, made one at a time: a square of the longer side is never held.
class PaddedRows {
 public:
  PaddedRows(const RgbImage& image, const Geometry& geometry, std::array<uint8_t, 3> color)
      : image_(image), geometry_(geometry) {
    if (geometry.padded_width == image.width && geometry.padded_height == image.height) return;
    blank_.resize(static_cast<size_t>(geometry.padded_width) * kChannels);
    for (size_t i = 0; i < blank_.size(); ++i) blank_[i] = color[i % kChannels];
    row_ = blank_;
  }

  const uint8_t* Row(int y) {
    const int64_t row_bytes = int64_t{image_.width} * kChannels;
    const int inside = y - geometry_.pad_top;
    if (inside < 0 || inside >= image_.height) return blank_.data();
    const uint8_t* stored = image_.rgb.data() + inside * row_bytes;
    if (blank_.empty() || geometry_.padded_width == image_.width) return stored;
    std::memcpy(row_.data() + int64_t{geometry_.pad_left} * kChannels, stored, row_bytes);
    return row_.data();
  }

 private:
  const RgbImage& image_;
  const Geometry& geometry_;
  std::vector<uint8_t> blank_;
  std::vector<uint8_t> row_;
};

// [rows, columns, 3] into its place in [3, height, width].
void PlaceInPlanes(const std::vector<uint8_t>& window, const Geometry& geometry,
                   Preprocessed& result) {
  const int64_t plane = int64_t{geometry.height} * geometry.width;
  const uint8_t* in = window.data();
  for (int y = 0; y < geometry.rows.size; ++y) {
    uint8_t* out = result.u8.data() + int64_t{geometry.top + y} * geometry.width + geometry.left;
    for (int x = 0; x < geometry.columns.size; ++x, in += kChannels) {
      out[x] = in[0];
      out[x + plane] = in[1];
      out[x + 2 * plane] = in[2];
    }
  }
}

// In f32, in the order that the processors use: rescale, then mean and deviation.
void Normalize(const PreprocessConfig& config, Preprocessed& result) {
  const size_t plane = result.u8.size() / kChannels;
  for (int c = 0; c < kChannels; ++c) {
    std::array<float, 256> table;
    for (int value = 0; value < 256; ++value) {
      float scaled = static_cast<float>(config.rescale ? value * config.rescale_factor : value);
      if (config.normalize) {
        scaled = (scaled - static_cast<float>(config.mean[c])) / static_cast<float>(config.std[c]);
      }
      table[value] = scaled;
    }
    const uint8_t* in = result.u8.data() + c * plane;
    float* out = result.pixel_values.data() + c * plane;
    for (size_t i = 0; i < plane; ++i) out[i] = table[in[i]];
  }
}

}  // namespace

absl::StatusOr<Preprocessed> Preprocess(const RgbImage& image, const PreprocessConfig& config) {
  CHECK(image.rgb.size() == static_cast<size_t>(image.width) * image.height * kChannels);
  ASSIGN_OR_RETURN(const Geometry geometry, PlanGeometry(image.width, image.height, config));
  PaddedRows rows(image, geometry, config.pad_color);
  const ResampleShape shape = {geometry.padded_width,  geometry.padded_height,
                               geometry.resized_width, geometry.resized_height,
                               geometry.columns,       geometry.rows};
  const std::vector<uint8_t> window =
      Resample([&rows](int y) { return rows.Row(y); }, shape, config.filter);
  Preprocessed result;
  result.height = geometry.height;
  result.width = geometry.width;
  result.u8.resize(static_cast<size_t>(geometry.height) * geometry.width * kChannels);
  PlaceInPlanes(window, geometry, result);
  result.pixel_values.resize(result.u8.size());
  Normalize(config, result);
  return result;
}

}  // namespace tessera::vision
