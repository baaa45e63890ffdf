// The only file that knows libpng. The library reports errors by longjmp: the functions named Try*
// hold the setjmp and, between it and their return, only plain C data.
#include <png.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"
#include "services/vision/image/exif.h"

namespace tessera::vision {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kChunkOverheadBytes = 12;       // length, type, CRC
constexpr size_t kChunkBytes = size_t{1} << 20;  // of one chunk that the library buffers

struct PngReader {
  png_structp png;
  png_infop info;
  const char* data;
  size_t size;
  size_t at;
  bool out_of_bytes;
  const StillWanted* wanted;  // of decoding
  bool unwanted;
  char message[128];
};

[[noreturn]] void OnError(png_structp png, png_const_charp text) {
  PngReader* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->message, sizeof(reader->message), "%s", text);
  png_longjmp(png, 1);
}

void OnWarning(png_structp, png_const_charp) {}

void OnRead(png_structp png, png_bytep out, png_size_t count) {
  PngReader* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  reader->out_of_bytes = reader->size - reader->at < count;
  if (reader->out_of_bytes) png_error(png, "the file is cut");
  std::memcpy(out, reader->data + reader->at, count);
  reader->at += count;
}

// Owns the library's memory.
class Png {
 public:
  explicit Png(absl::string_view bytes) : reader_{} {
    reader_.data = bytes.data();
    reader_.size = bytes.size();
    reader_.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader_, OnError, OnWarning);
    if (reader_.png != nullptr) reader_.info = png_create_info_struct(reader_.png);
  }
  ~Png() { png_destroy_read_struct(&reader_.png, &reader_.info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  bool ok() const { return reader_.png != nullptr && reader_.info != nullptr; }
  PngReader* get() { return &reader_; }
  absl::Status Failure() const {
    return reader_.unwanted ? NotWanted() : CorruptImage("png", reader_.message);
  }

 private:
  PngReader reader_;
};

// Up to the first pixel data. Profiles, gamma and text are not even read.
bool TryReadInfo(PngReader* reader) {
  if (setjmp(png_jmpbuf(reader->png))) return false;
  png_set_read_fn(reader->png, reader, OnRead);
  png_set_keep_unknown_chunks(reader->png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_user_limits(reader->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // image.cc has the limits
  png_set_chunk_malloc_max(reader->png, kChunkBytes);
  png_read_info(reader->png, reader->info);
  return true;
}

// 8-bit RGB or RGBA, whatever the file has. Scales 16 bits by 1/257, rounded.
bool TryTransform(PngReader* reader, size_t row_bytes) {
  if (setjmp(png_jmpbuf(reader->png))) return false;
  png_set_expand(reader->png);  // palettes, 1, 2 and 4 bits, tRNS
  png_set_scale_16(reader->png);
  png_set_gray_to_rgb(reader->png);
  png_set_interlace_handling(reader->png);
  png_read_update_info(reader->png, reader->info);
  if (png_get_rowbytes(reader->png, reader->info) != row_bytes) {
    png_error(reader->png, "unexpected size of a row");
  }
  return true;
}

// Before a row is read; every 16th time it is asked for.
void StopUnwanted(PngReader* reader, int row) {
  if (row % 16 != 0 || !*reader->wanted || (*reader->wanted)()) return;
  reader->unwanted = true;
  png_error(reader->png, "nobody waits for it");
}

// `flat_rgb`: where rows go that have no alpha, or are flattened at once; `rgba_row` is room for
// one.
bool TryReadRows(PngReader* reader, int height, uint8_t* rgba_row, uint8_t* flat_rgb) {
  if (setjmp(png_jmpbuf(reader->png))) return false;
  const int64_t width = png_get_image_width(reader->png, reader->info);
  for (int y = 0; y < height; ++y) {
    StopUnwanted(reader, y);
    uint8_t* out = flat_rgb + y * width * 3;
    png_read_row(reader->png, rgba_row != nullptr ? rgba_row : out, nullptr);
    if (rgba_row != nullptr) FlattenOnWhite(rgba_row, width, out);
  }
  png_read_end(reader->png, nullptr);
  return true;
}

// Interlaced: every pass touches the whole picture.
bool TryReadPasses(PngReader* reader, int height, size_t row_bytes, uint8_t* rows) {
  if (setjmp(png_jmpbuf(reader->png))) return false;
  for (int pass = 0; pass < PNG_INTERLACE_ADAM7_PASSES; ++pass) {
    for (int y = 0; y < height; ++y) {
      StopUnwanted(reader, y);
      png_read_row(reader->png, rows + y * row_bytes, nullptr);
    }
  }
  png_read_end(reader->png, nullptr);
  return true;
}

uint32_t BigEndian32(absl::string_view bytes) {
  uint32_t value = 0;
  for (char c : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

// eXIf may stand before or behind the pixel data, so the chunks are walked, not decoded. nullopt:
// it may be in bytes that have not come.
std::optional<int> PngOrientation(const Beginning& in) {
  size_t at = kSignatureBytes;
  while (in.picture_bytes - at >= kChunkOverheadBytes) {
    if (in.bytes.size() < at + kChunkOverheadBytes) return std::nullopt;
    const size_t length = BigEndian32(in.bytes.substr(at));
    if (length > in.picture_bytes - at - kChunkOverheadBytes) return 1;
    if (in.bytes.substr(at + 4, 4) == "eXIf") {
      if (in.bytes.size() < at + kChunkOverheadBytes + length) return std::nullopt;
      return ExifOrientation(in.bytes.substr(at + 8, length));
    }
    at += kChunkOverheadBytes + length;
  }
  return 1;
}

absl::Status Open(Png& png, bool whole) {
  if (!png.ok()) return absl::ResourceExhaustedError("no memory for a png reader");
  if (TryReadInfo(png.get())) return absl::OkStatus();
  return png.get()->out_of_bytes && !whole ? MoreBytesNeeded() : png.Failure();
}

bool HasAlpha(png_structp png, png_infop info) {
  return (png_get_color_type(png, info) & PNG_COLOR_MASK_ALPHA) != 0 ||
         png_get_valid(png, info, PNG_INFO_tRNS) != 0;
}

}  // namespace

absl::StatusOr<ImageHeader> ReadPngHeader(const Beginning& in) {
  Png reader(in.bytes);
  RETURN_IF_ERROR(Open(reader, in.whole()));
  png_structp png = reader.get()->png;
  png_infop info = reader.get()->info;
  ImageHeader header;
  header.stored_width = static_cast<int>(png_get_image_width(png, info));
  header.stored_height = static_cast<int>(png_get_image_height(png, info));
  const std::optional<int> orientation = PngOrientation(in);
  header.orientation_known = orientation.has_value();
  header.orientation = orientation.value_or(1);
  header.channels = png_get_channels(png, info);
  header.bits = png_get_bit_depth(png, info);
  header.alpha = HasAlpha(png, info);
  const bool interlaced = png_get_interlace_type(png, info) != PNG_INTERLACE_NONE;
  header.decode_bytes = BytesForPixels(header, interlaced && header.alpha ? 4 : 3);
  return header;
}

absl::StatusOr<RgbImage> DecodePng(absl::string_view bytes, const ImageHeader& header,
                                   const StillWanted& wanted) {
  Png reader(bytes);
  reader.get()->wanted = &wanted;
  RETURN_IF_ERROR(Open(reader, /*whole=*/true));
  const size_t width = static_cast<size_t>(header.stored_width);
  const size_t row_bytes = width * (header.alpha ? 4 : 3);
  const bool interlaced =
      png_get_interlace_type(reader.get()->png, reader.get()->info) != PNG_INTERLACE_NONE;
  if (!TryTransform(reader.get(), row_bytes)) return reader.Failure();
  RgbImage image;
  image.width = header.stored_width;
  image.height = header.stored_height;
  const size_t flat_bytes = static_cast<size_t>(StoredPixels(header)) * 3;
  if (interlaced) {
    image.rgb.resize(row_bytes * static_cast<size_t>(image.height));
    if (!TryReadPasses(reader.get(), image.height, row_bytes, image.rgb.data())) {
      return reader.Failure();
    }
    if (header.alpha) FlattenOnWhite(image.rgb.data(), StoredPixels(header), image.rgb.data());
    image.rgb.resize(flat_bytes);
    return image;
  }
  image.rgb.resize(flat_bytes);
  std::vector<uint8_t> rgba_row(header.alpha ? row_bytes : 0);
  if (!TryReadRows(reader.get(), image.height, header.alpha ? rgba_row.data() : nullptr,
                   image.rgb.data())) {
    return reader.Failure();
  }
  return image;
}

}  // namespace tessera::vision
