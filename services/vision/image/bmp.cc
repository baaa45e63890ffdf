// A reader for BMP: the OS/2 core header and every Windows header, 1, 4, 8 bits with palette, 16,
// 24 and 32 bits with or without masks, rows bottom-up or top-down. Run lengths are refused.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"

namespace tessera::vision {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr uint32_t kCoreHeaderBytes = 12;
constexpr uint32_t kInfoHeaderBytes = 40;
constexpr uint32_t kMaxHeaderBytes = 124;  // V5
constexpr uint32_t kRgbaMasksHeaderBytes = 56;
enum Compression : uint32_t { kNone = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaFields = 6 };

// One channel of a packed pixel.
struct Field {
  uint32_t mask = 0;
  int shift = 0;
  uint32_t max = 0;  // 0: the channel is absent

  static Field Of(uint32_t mask) {
    Field field;
    field.mask = mask;
    if (mask == 0) return field;
    while ((mask >> field.shift & 1) == 0) ++field.shift;
    field.max = mask >> field.shift;
    return field;
  }
  // Whole scale to 255, rounded.
  uint8_t Get(uint32_t pixel) const {
    if (max == 0) return 0;
    const uint64_t value = (pixel & mask) >> shift;
    return static_cast<uint8_t>((value * 255 + max / 2) / max);
  }
  bool contiguous() const { return (max & (max + 1)) == 0; }
};

struct Layout {
  int32_t width = 0;
  int32_t height = 0;  // positive
  bool top_down = false;
  int bits = 0;
  size_t pixels_at = 0;                         // offset of the first stored row
  size_t row_bytes = 0;                         // padded to 4
  std::array<Field, 4> fields;                  // red, green, blue, alpha; 16 and 32 bits
  std::vector<std::array<uint8_t, 3>> palette;  // RGB; indices beyond it are black
};

uint32_t U16(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]) |
         static_cast<uint32_t>(static_cast<uint8_t>(bytes[at + 1])) << 8;
}
uint32_t U32(absl::string_view bytes, size_t at) {
  return U16(bytes, at) | U16(bytes, at + 2) << 16;
}

absl::Status CheckShape(const Layout& layout, uint32_t planes, uint32_t compression) {
  if (layout.width <= 0 || layout.height <= 0) {
    return CorruptImage("bmp", "a side of the picture is not positive");
  }
  if (planes != 1) return CorruptImage("bmp", "planes must be 1");
  const bool packed = layout.bits == 16 || layout.bits == 32;
  const bool known =
      packed || layout.bits == 1 || layout.bits == 4 || layout.bits == 8 || layout.bits == 24;
  if (!known) return CorruptImage("bmp", absl::StrCat(layout.bits, " bits per pixel"));
  if (compression == kRle8 || compression == kRle4) return UnsupportedImage("bmp", "run lengths");
  const bool masks = compression == kBitFields || compression == kAlphaFields;
  if (compression != kNone && !(masks && packed)) {
    return UnsupportedImage("bmp", absl::StrCat("compression ", compression));
  }
  return absl::OkStatus();
}

absl::Status Cut(const Beginning& in, absl::string_view what) {
  return in.whole() ? CorruptImage("bmp", what) : MoreBytesNeeded();
}

// Masks stand in the header from V2 on, behind it before.
absl::Status ReadMasks(const Beginning& in, uint32_t header_bytes, uint32_t compression,
                       Layout& layout) {
  std::array<uint32_t, 4> masks = {0xFF0000, 0xFF00, 0xFF, 0};
  if (layout.bits == 16) masks = {0x7C00, 0x3E0, 0x1F, 0};
  if (compression != kNone) {
    const bool alpha = compression == kAlphaFields || header_bytes >= kRgbaMasksHeaderBytes;
    const size_t count = alpha ? 4 : 3;
    const size_t at = kFileHeaderBytes + kInfoHeaderBytes;
    if (in.bytes.size() < at + count * 4) return Cut(in, "the file is cut in its masks");
    masks[3] = 0;
    for (size_t i = 0; i < count; ++i) masks[i] = U32(in.bytes, at + i * 4);
  }
  for (size_t i = 0; i < masks.size(); ++i) {
    layout.fields[i] = Field::Of(masks[i]);
    const bool too_wide = layout.bits == 16 && masks[i] > 0xFFFF;
    if (!layout.fields[i].contiguous() || too_wide) return CorruptImage("bmp", "bad colour masks");
  }
  return absl::OkStatus();
}

absl::Status ReadPalette(const Beginning& in, uint32_t header_bytes, Layout& layout) {
  const size_t entry_bytes = header_bytes == kCoreHeaderBytes ? 3 : 4;
  const size_t most = size_t{1} << layout.bits;
  size_t count = header_bytes == kCoreHeaderBytes ? 0 : U32(in.bytes, kFileHeaderBytes + 32);
  if (count == 0 || count > most) count = most;
  const size_t at = kFileHeaderBytes + header_bytes;
  if (layout.pixels_at < at) return CorruptImage("bmp", "pixels inside the header");
  // Old writers leave entries out without saying so: what lies before the pixels counts.
  count = std::min(count, (layout.pixels_at - at) / entry_bytes);
  if (count == 0) return CorruptImage("bmp", "no palette");
  if (in.bytes.size() < at + count * entry_bytes) return MoreBytesNeeded();
  layout.palette.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = at + i * entry_bytes;
    for (size_t c = 0; c < 3; ++c) {
      layout.palette[i][c] = static_cast<uint8_t>(in.bytes[entry + 2 - c]);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadSides(absl::string_view bytes, uint32_t header_bytes, Layout& layout) {
  if (header_bytes == kCoreHeaderBytes) {
    layout.width = static_cast<int32_t>(U16(bytes, 18));
    layout.height = static_cast<int32_t>(U16(bytes, 20));
    layout.bits = static_cast<int>(U16(bytes, 24));
    return absl::OkStatus();
  }
  layout.width = static_cast<int32_t>(U32(bytes, 18));
  const int32_t height = static_cast<int32_t>(U32(bytes, 22));
  if (height == std::numeric_limits<int32_t>::min()) return CorruptImage("bmp", "bad height");
  layout.top_down = height < 0;
  layout.height = layout.top_down ? -height : height;
  layout.bits = static_cast<int>(U16(bytes, 28));
  return absl::OkStatus();
}

// Checks everything but the presence of all rows. Takes no memory beyond the palette.
absl::StatusOr<Layout> ReadLayout(const Beginning& in) {
  const absl::string_view bytes = in.bytes;
  if (bytes.size() < kFileHeaderBytes + kCoreHeaderBytes) {
    return Cut(in, "the file is cut in its header");
  }
  const uint32_t header_bytes = U32(bytes, kFileHeaderBytes);
  const bool core = header_bytes == kCoreHeaderBytes;
  if (!core && (header_bytes < kInfoHeaderBytes || header_bytes > kMaxHeaderBytes)) {
    return CorruptImage("bmp", "unknown size of its header");
  }
  if (bytes.size() < kFileHeaderBytes + header_bytes) {
    return Cut(in, "the file is cut in its header");
  }
  Layout layout;
  layout.pixels_at = U32(bytes, 10);
  RETURN_IF_ERROR(ReadSides(bytes, header_bytes, layout));
  const uint32_t planes = U16(bytes, core ? 22 : 26);
  const uint32_t compression = core ? uint32_t{kNone} : U32(bytes, 30);
  RETURN_IF_ERROR(CheckShape(layout, planes, compression));
  const size_t row_bits = static_cast<size_t>(layout.width) * layout.bits;
  layout.row_bytes = (row_bits + 31) / 32 * 4;
  if (layout.pixels_at < kFileHeaderBytes + header_bytes || layout.pixels_at >= in.picture_bytes) {
    return CorruptImage("bmp", "the pixels start outside the file");
  }
  if (layout.bits == 16 || layout.bits == 32) {
    RETURN_IF_ERROR(ReadMasks(in, header_bytes, compression, layout));
  } else if (layout.bits <= 8) {
    RETURN_IF_ERROR(ReadPalette(in, header_bytes, layout));
  }
  return layout;
}

void WriteIndexed(const Layout& layout, const uint8_t* in, uint8_t* out) {
  const int per_byte = 8 / layout.bits;
  const int index_mask = (1 << layout.bits) - 1;
  for (int x = 0; x < layout.width; ++x, out += 3) {
    const int shift = (per_byte - 1 - x % per_byte) * layout.bits;
    const size_t index = in[x / per_byte] >> shift & index_mask;
    if (index < layout.palette.size()) std::memcpy(out, layout.palette[index].data(), 3);
  }
}

void WritePacked(const Layout& layout, absl::string_view row, uint8_t* out) {
  const size_t pixel_bytes = static_cast<size_t>(layout.bits / 8);
  const bool opaque = layout.fields[3].max == 0;
  for (int x = 0; x < layout.width; ++x, out += 3) {
    const size_t at = static_cast<size_t>(x) * pixel_bytes;
    const uint32_t pixel = pixel_bytes == 2 ? U16(row, at) : U32(row, at);
    const uint8_t alpha = opaque ? 255 : layout.fields[3].Get(pixel);
    for (int c = 0; c < 3; ++c) out[c] = OnWhite(layout.fields[c].Get(pixel), alpha);
  }
}

void WriteBgr(const Layout& layout, const uint8_t* in, uint8_t* out) {
  for (int x = 0; x < layout.width; ++x, in += 3, out += 3) {
    out[0] = in[2];
    out[1] = in[1];
    out[2] = in[0];
  }
}

}  // namespace

absl::StatusOr<ImageHeader> ReadBmpHeader(const Beginning& in) {
  ASSIGN_OR_RETURN(const Layout layout, ReadLayout(in));
  ImageHeader header;
  header.stored_width = layout.width;
  header.stored_height = layout.height;
  header.channels = layout.bits <= 8 ? 1 : layout.fields[3].max != 0 ? 4 : 3;
  header.bits = layout.bits <= 8 ? layout.bits : layout.bits == 16 ? 5 : 8;
  header.alpha = layout.fields[3].max != 0;
  header.decode_bytes = BytesForPixels(header, 3);
  return header;
}

absl::StatusOr<RgbImage> DecodeBmp(absl::string_view bytes, const ImageHeader& header) {
  ASSIGN_OR_RETURN(const Layout layout, ReadLayout(Whole(bytes)));
  const size_t rows = static_cast<size_t>(layout.height);
  // Some writers leave out the padding of the last row.
  const size_t last_row_bytes = (static_cast<size_t>(layout.width) * layout.bits + 7) / 8;
  const size_t needed = layout.row_bytes * (rows - 1) + last_row_bytes;
  if (bytes.size() - layout.pixels_at < needed) return CorruptImage("bmp", "the file is cut");
  RgbImage image = BlankImage(header);
  for (size_t y = 0; y < rows; ++y) {
    const size_t stored = layout.top_down ? y : rows - 1 - y;
    const absl::string_view row =
        bytes.substr(layout.pixels_at + stored * layout.row_bytes, layout.row_bytes);
    const uint8_t* in = reinterpret_cast<const uint8_t*>(row.data());
    uint8_t* out = image.rgb.data() + y * static_cast<size_t>(layout.width) * 3;
    if (layout.bits <= 8) {
      WriteIndexed(layout, in, out);
    } else if (layout.bits == 24) {
      WriteBgr(layout, in, out);
    } else {
      WritePacked(layout, row, out);
    }
  }
  return image;
}

}  // namespace tessera::vision
