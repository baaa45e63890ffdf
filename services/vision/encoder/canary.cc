#include "services/vision/encoder/canary.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/embedding_record.h"
#include "common/store/rows.h"
#include "services/vision/image/image.h"
#include "services/vision/preprocess/preprocess.h"

namespace tessera::vision {
namespace {

constexpr int kSide = 96;  // pixels
constexpr uint8_t kGrey = 128;
// Rows whose difference from grey is less than this share of what it must be see nothing.
constexpr double kBlindShare = 0.1;

struct Color {
  uint8_t red, green, blue;
};

// A red disc, a blue square, green stripes and a shade, on white: every tower tells it from grey.
Color PixelAt(int x, int y) {
  const int dx = x - 28, dy = y - 30;
  if (dx * dx + dy * dy < 20 * 20) return {220, 30, 40};
  if (x >= 56 && x < 88 && y >= 12 && y < 44) return {30, 60, 210};
  if (y >= 60 && y < 84 && x >= 10 && x < 50 && x / 5 % 2 == 0) return {20, 150, 60};
  if (y >= 56 && x >= 54) {
    const auto shade = static_cast<uint8_t>(40 + 2 * (x + y) / 2);
    return {shade, shade, static_cast<uint8_t>(255 - shade)};
  }
  return {255, 255, 255};
}

void AppendU32(uint32_t value, std::string& out) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// A BMP of 24 bits: two headers, then rows from the bottom up, blue first. A row is a multiple of 4
// bytes long.
std::string DrawnPicture() {
  static_assert(kSide % 4 == 0);
  constexpr uint32_t kHeaders = 54, kPixels = kSide * kSide * 3;
  std::string bmp = "BM";
  for (const uint32_t value :
       {kHeaders + kPixels, 0u, kHeaders, 40u, uint32_t{kSide}, uint32_t{kSide}, 1u | 24u << 16, 0u,
        kPixels, 2835u, 2835u, 0u, 0u}) {
    AppendU32(value, bmp);
  }
  for (int y = kSide - 1; y >= 0; --y) {
    for (int x = 0; x < kSide; ++x) {
      const Color color = PixelAt(x, y);
      for (const uint8_t part : {color.blue, color.green, color.red}) {
        bmp.push_back(static_cast<char>(part));
      }
    }
  }
  return bmp;
}

// The rows of a picture and of a grey one of its size, in one pass.
absl::StatusOr<std::pair<Tensor, Tensor>> Encode(absl::string_view picture,
                                                 const VisionConfig& config, VisionTower& tower) {
  ASSIGN_OR_RETURN(const RgbImage image, DecodeImage(picture, {}));
  RgbImage grey = image;
  std::fill(grey.rgb.begin(), grey.rgb.end(), kGrey);
  ASSIGN_OR_RETURN(const Preprocessed input, Preprocess(image, config.preprocess));
  ASSIGN_OR_RETURN(const Preprocessed grey_input, Preprocess(grey, config.preprocess));
  std::vector<TensorView> views;
  for (const Preprocessed* one : {&input, &grey_input}) {
    views.push_back({DType::kF32,
                     {3, one->height, one->width},
                     reinterpret_cast<const std::byte*>(one->pixel_values.data())});
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> rows, tower.Encode(views));
  return std::pair(std::move(rows[0]), std::move(rows[1]));
}

// What a decoder gets of these rows when they come out of a record.
absl::StatusOr<Tensor> ThroughRecord(const Tensor& rows, DType record_dtype) {
  const int64_t count = rows.shape()[0], width = rows.shape()[1];
  ASSIGN_OR_RETURN(store::StoredRows stored,
                   store::MakeRows(rows.f32(), count, width, record_dtype));
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->dtype = stored.dtype;
  record->rows = count;
  record->width = width;
  record->data = std::move(stored.data);
  const store::FloatRows read = store::ToFloatRows(std::move(record));
  const std::vector<float> values = ToFloats(read.view);
  Tensor out(DType::kF32, rows.shape());
  std::copy(values.begin(), values.end(), out.f32().begin());
  return out;
}

absl::Status Failed(absl::string_view reason, absl::string_view what) {
  return base::Error(absl::StatusCode::kFailedPrecondition, reason, what);
}

absl::Status CheckSight(const weights::Canary& canary, const Tensor& rows, const Tensor& grey) {
  const double seen = RelativeError(rows, grey);
  const double needed = RelativeError(canary.rows, canary.grey_rows);
  if (seen >= kBlindShare * needed) return absl::OkStatus();
  return Failed("CANARY_BLIND",
                absl::StrFormat("the model is blind: its rows for a picture and for plain grey "
                                "differ by %.2g, those of the reference by %.2g",
                                seen, needed));
}

}  // namespace

absl::StatusOr<CanaryRows> DrawCanary(const VisionConfig& config, VisionTower& tower) {
  CanaryRows out;
  out.picture = DrawnPicture();
  ASSIGN_OR_RETURN(auto rows, Encode(out.picture, config, tower));
  out.rows = std::move(rows.first);
  out.grey_rows = std::move(rows.second);
  return out;
}

// Against the reference in f32. In f32 only the order of sums differs: 1e-6 to 1e-5 is seen, and a
// broken layer is off by tenths. In f16 a value is rounded to 2^-11 of itself some ten times in
// each of 24 or so layers; such errors add up as a random walk, sqrt(240) * 2^-11 = 0.8 %, and the
// bound leaves a factor of four. Then what the record may lose: half a unit of 2^-10 in f16, 1 % of
// a row in int8 (int8_rows.h).
double CanaryBound(DType compute_dtype, DType record_dtype) {
  const double compute = compute_dtype == DType::kF32 ? 1e-3 : 0.03;
  const double record = record_dtype == DType::kF32 ? 0 : record_dtype == DType::kF16 ? 1e-3 : 0.01;
  return compute + record;
}

double RelativeError(const Tensor& rows, const Tensor& expected) {
  CHECK(rows.shape() == expected.shape());
  const int64_t count = expected.shape()[0], width = expected.shape()[1];
  std::vector<double> norms(count), errors(count);
  double squares = 0;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double wanted = expected.f32()[i], error = rows.f32()[i] - wanted;
      norms[r] += wanted * wanted;
      errors[r] += error * error;
    }
    squares += norms[r];
  }
  const double mean = squares / static_cast<double>(count);
  double largest = 0;
  for (int64_t r = 0; r < count; ++r) {
    const double error = std::sqrt(errors[r] / std::max(norms[r], mean));
    largest = std::max(largest, std::isnan(error) ? HUGE_VAL : error);
  }
  return largest;
}

absl::Status CheckCanary(const weights::Canary& canary, const VisionConfig& config,
                         VisionTower& tower, DType compute_dtype, DType record_dtype) {
  if (canary.preprocessing != config.preprocess.Canonical()) {
    return Failed("CANARY_FAILED", absl::StrCat("preprocessing is \"",
                                                config.preprocess.Canonical(), "\", but was \"",
                                                canary.preprocessing, "\" when the file was made"));
  }
  ASSIGN_OR_RETURN(const auto encoded, Encode(canary.picture, config, tower));
  const auto& [own, grey] = encoded;
  if (own.shape() != canary.rows.shape()) {
    return Failed("CANARY_FAILED", absl::StrCat("the picture has rows ", ShapeText(own.shape()),
                                                ", not ", ShapeText(canary.rows.shape())));
  }
  absl::StatusOr<Tensor> rows = ThroughRecord(own, record_dtype);
  if (!rows.ok()) return Failed("CANARY_FAILED", rows.status().message());
  RETURN_IF_ERROR(CheckSight(canary, *rows, grey));
  const double error = RelativeError(*rows, canary.rows);
  const double bound = CanaryBound(compute_dtype, record_dtype);
  if (error <= bound) return absl::OkStatus();
  return Failed("CANARY_FAILED",
                absl::StrFormat("the rows of the picture are off by %.2g of their norm; the bound "
                                "for %s computing and %s records is %.2g: weights or device are "
                                "broken, or the file was made from other weights",
                                error, std::string(Name(compute_dtype)),
                                std::string(Name(record_dtype)), bound));
}

}  // namespace tessera::vision
