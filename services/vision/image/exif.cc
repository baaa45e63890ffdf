#include "services/vision/image/exif.h"

#include <cstdint>

namespace tessera::vision {
namespace {

constexpr uint16_t kOrientationTag = 0x0112;
constexpr uint16_t kShortType = 3;
constexpr uint16_t kLongType = 4;
constexpr size_t kEntryBytes = 12;

// Bounded reads; anything past the end is 0, which no valid field is.
class TiffReader {
 public:
  TiffReader(absl::string_view bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t U16(size_t at) const { return Read(at, 2); }
  uint32_t U32(size_t at) const { return Read(at, 4); }
  size_t size() const { return bytes_.size(); }

 private:
  uint32_t Read(size_t at, int count) const {
    if (at > bytes_.size() || bytes_.size() - at < static_cast<size_t>(count)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t byte = static_cast<uint8_t>(bytes_[at + i]);
      value |= byte << (8 * (big_endian_ ? count - 1 - i : i));
    }
    return value;
  }

  absl::string_view bytes_;
  bool big_endian_;
};

}  // namespace

int ExifOrientation(absl::string_view block) {
  const absl::string_view prefix("Exif\0\0", 6);
  if (block.substr(0, prefix.size()) == prefix) block.remove_prefix(prefix.size());
  const absl::string_view order = block.substr(0, 2);
  if (order != "II" && order != "MM") return 1;
  const TiffReader tiff(block, order == "MM");
  if (tiff.U16(2) != 42) return 1;
  const size_t directory = tiff.U32(4);
  const uint32_t entries = tiff.U16(directory);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry >= tiff.size()) break;
    if (tiff.U16(entry) != kOrientationTag) continue;
    const uint32_t type = tiff.U16(entry + 2);
    if ((type != kShortType && type != kLongType) || tiff.U32(entry + 4) != 1) return 1;
    const uint32_t value = type == kShortType ? tiff.U16(entry + 8) : tiff.U32(entry + 8);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace tessera::vision
