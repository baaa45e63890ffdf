#include "services/vision/preprocess/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/base/check.h"

namespace tessera::vision {
namespace {

constexpr int kPrecisionBits = 32 - 8 - 2;  // of a weight, after the binary point
constexpr int kChannels = 3;

double Bilinear(double x) {
  x = std::abs(x);
  return x < 1 ? 1 - x : 0;
}

// Keys' cubic convolution with a = -0.5.
double Bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

double Sinc(double x) {
  if (x == 0) return 1;
  x *= M_PI;
  return std::sin(x) / x;
}

double Lanczos(double x) { return -3 <= x && x < 3 ? Sinc(x) * Sinc(x / 3) : 0; }

struct Kernel {
  double (*weight)(double);
  double support;  // input pixels to each side at scale 1
};

Kernel KernelOf(Filter filter) {
  switch (filter) {
    case Filter::kLanczos:
      return {Lanczos, 3};
    case Filter::kBilinear:
      return {Bilinear, 1};
    case Filter::kBicubic:
      return {Bicubic, 2};
  }
  CHECK(false);
  return {};
}

// Which input pixels make one output pixel, and how much of each.
struct Taps {
  int begin = 0;  // first input pixel
  int count = 0;
  const int32_t* weights = nullptr;  // [count], fixed point
};

// The taps of all output pixels in the window of one axis.
class Axis {
 public:
  Axis(int in_size, int out_size, Window window, const Kernel& kernel)
      : taps_(window.size), identity_(in_size == out_size) {
    const double scale = static_cast<double>(in_size) / out_size;
    const double filter_scale = std::max(scale, 1.0);
    const double shrink = 1 / filter_scale;
    const double support = kernel.support * filter_scale;
    const int most = static_cast<int>(std::ceil(support)) * 2 + 1;
    weights_.resize(static_cast<size_t>(most) * window.size);
    std::vector<double> exact(most);
    for (int i = 0; i < window.size; ++i) {
      const double center = (window.begin + i + 0.5) * scale;
      const int begin = std::max(0, static_cast<int>(center - support + 0.5));
      const int end = std::min(in_size, static_cast<int>(center + support + 0.5));
      double sum = 0;
      for (int k = 0; k < end - begin; ++k) {
        exact[k] = kernel.weight((k + begin - center + 0.5) * shrink);
        sum += exact[k];
      }
      int32_t* weights = weights_.data() + static_cast<size_t>(most) * i;
      for (int k = 0; k < end - begin; ++k)
        weights[k] = ToFixed(sum != 0 ? exact[k] / sum : exact[k]);
      taps_[i] = {begin, end - begin, weights};
    }
    begin_ = identity_ ? window.begin : taps_.front().begin;
    end_ = identity_ ? window.begin + window.size : taps_.back().begin + taps_.back().count;
  }

  // Equal sizes: Pillow leaves the pass out.
  bool identity() const { return identity_; }
  // Input pixels that the window needs: [begin, end).
  int begin() const { return begin_; }
  int end() const { return end_; }
  const Taps& operator[](int i) const { return taps_[i]; }

 private:
  static int32_t ToFixed(double weight) {
    const double scaled = weight * (1 << kPrecisionBits);
    return static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
  }

  std::vector<Taps> taps_;
  std::vector<int32_t> weights_;
  bool identity_;
  int begin_ = 0;
  int end_ = 0;
};

uint8_t ToByte(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

// One row of the input to one row of the window's width.
void PassHorizontal(const uint8_t* in, const Axis& axis, int out_width, uint8_t* out) {
  for (int x = 0; x < out_width; ++x) {
    const Taps& taps = axis[x];
    const uint8_t* pixel = in + int64_t{taps.begin} * kChannels;
    int32_t red = 1 << (kPrecisionBits - 1);
    int32_t green = red;
    int32_t blue = red;
    for (int k = 0; k < taps.count; ++k, pixel += kChannels) {
      const int32_t weight = taps.weights[k];
      red += pixel[0] * weight;
      green += pixel[1] * weight;
      blue += pixel[2] * weight;
    }
    out[x * kChannels] = ToByte(red);
    out[x * kChannels + 1] = ToByte(green);
    out[x * kChannels + 2] = ToByte(blue);
  }
}

// Rows of `row_bytes`, the first of them input row axis.begin(), to one row of the result.
void PassVertical(const uint8_t* in, const Axis& axis, int y, int row_bytes, int32_t* sums,
                  uint8_t* out) {
  const Taps& taps = axis[y];
  std::fill(sums, sums + row_bytes, 1 << (kPrecisionBits - 1));
  for (int k = 0; k < taps.count; ++k) {
    const uint8_t* row = in + int64_t{taps.begin + k - axis.begin()} * row_bytes;
    const int32_t weight = taps.weights[k];
    for (int i = 0; i < row_bytes; ++i) sums[i] += row[i] * weight;
  }
  for (int i = 0; i < row_bytes; ++i) out[i] = ToByte(sums[i]);
}

}  // namespace

std::vector<uint8_t> Resample(RowSource source, const ResampleShape& shape, Filter filter) {
  CHECK(shape.in_width > 0 && shape.in_height > 0);
  CHECK(shape.columns.begin >= 0 && shape.columns.size > 0);
  CHECK(shape.columns.begin + shape.columns.size <= shape.out_width);
  CHECK(shape.rows.begin >= 0 && shape.rows.size > 0);
  CHECK(shape.rows.begin + shape.rows.size <= shape.out_height);
  const Kernel kernel = KernelOf(filter);
  const Axis across(shape.in_width, shape.out_width, shape.columns, kernel);
  const Axis down(shape.in_height, shape.out_height, shape.rows, kernel);
  const int row_bytes = shape.columns.size * kChannels;
  std::vector<uint8_t> middle(static_cast<size_t>(down.end() - down.begin()) * row_bytes);
  for (int y = down.begin(); y < down.end(); ++y) {
    const uint8_t* in = source(y);
    uint8_t* out = middle.data() + static_cast<size_t>(y - down.begin()) * row_bytes;
    if (across.identity()) {
      std::memcpy(out, in + int64_t{across.begin()} * kChannels, row_bytes);
    } else {
      PassHorizontal(in, across, shape.columns.size, out);
    }
  }
  if (down.identity()) return middle;
  std::vector<uint8_t> result(static_cast<size_t>(shape.rows.size) * row_bytes);
  std::vector<int32_t> sums(row_bytes);
  for (int y = 0; y < shape.rows.size; ++y) {
    PassVertical(middle.data(), down, y, row_bytes, sums.data(),
                 result.data() + static_cast<size_t>(y) * row_bytes);
  }
  return result;
}

}  // namespace tessera::vision
