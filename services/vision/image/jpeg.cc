// The only file that knows libjpeg. The library reports errors by longjmp: the functions named
// Try* hold the setjmp and, between it and their return, only plain C data.
#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "services/vision/image/codec.h"
#include "services/vision/image/exif.h"

// After <cstdio>, which it needs.
#include <jpeglib.h>

// The warnings; after jpeglib.h, which decides which of them there are.
#include <jerror.h>

namespace tessera::vision {
namespace {

// A progressive file has about ten; each costs a pass over all blocks.
constexpr int kMaxScans = 100;
// Samples of all scans together. Libjpeg's own ten scans of the largest picture have 0.9 thousand
// million; each takes about a nanosecond, if there is nothing in it.
constexpr int64_t kMaxScannedSamples = 1'000'000'000;
constexpr size_t kSlackBytes = size_t{16} << 20;  // the library's own tables and rows
constexpr unsigned kExifMarkerBytes = 0xFFFF;

struct JpegReader {
  jpeg_decompress_struct cinfo;  // first: callbacks get its address and cast it back
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
  int first_corruption;  // a warning that means lost pixels; 0 when there was none
  bool no_end_marker;
  const char* missing;  // null when every part came
  const StillWanted* wanted;
  bool unwanted;
};

JpegReader* ReaderOf(j_common_ptr cinfo) { return reinterpret_cast<JpegReader*>(cinfo); }

[[noreturn]] void OnError(j_common_ptr cinfo) {
  JpegReader* reader = ReaderOf(cinfo);
  cinfo->err->format_message(cinfo, reader->message);
  std::longjmp(reader->jump, 1);
}

void OnMessage(j_common_ptr cinfo, int level) {
  if (level >= 0) return;  // a trace
  JpegReader* reader = ReaderOf(cinfo);
  const int code = cinfo->err->msg_code;
  const bool corrupt = code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                       code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC;
  if (corrupt && reader->first_corruption == 0) {
    reader->first_corruption = code;
    cinfo->err->format_message(cinfo, reader->message);
  }
  if (code == JWRN_JPEG_EOF) reader->no_end_marker = true;
}

void OnProgress(j_common_ptr cinfo) {
  JpegReader* reader = ReaderOf(cinfo);
  reader->unwanted = *reader->wanted && !(*reader->wanted)();
  if (reader->unwanted) std::longjmp(reader->jump, 1);
  if (reader->cinfo.input_scan_number <= kMaxScans) return;
  std::snprintf(reader->message, sizeof(reader->message), "more than %d scans", kMaxScans);
  std::longjmp(reader->jump, 1);
}

// A source that ends before the picture does: the library stops there instead of seeing an end
// marker.
boolean NoMoreBytes(j_decompress_ptr) { return FALSE; }

void SkipBytes(j_decompress_ptr cinfo, long count) {
  if (count <= 0) return;
  jpeg_source_mgr* source = cinfo->src;
  const size_t skipped = std::min(static_cast<size_t>(count), source->bytes_in_buffer);
  source->next_input_byte += skipped;
  source->bytes_in_buffer -= skipped;  // 0: what is left to skip is asked for, and did not come
}

// Owns the library's memory.
class Jpeg {
 public:
  explicit Jpeg(const StillWanted& wanted) : reader_{} {
    reader_.wanted = &wanted;
    reader_.cinfo.err = jpeg_std_error(&reader_.errors);
    reader_.errors.error_exit = OnError;
    reader_.errors.emit_message = OnMessage;
    reader_.progress.progress_monitor = OnProgress;
  }
  ~Jpeg() { jpeg_destroy_decompress(&reader_.cinfo); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  JpegReader* get() { return &reader_; }
  absl::Status Failure() const {
    return reader_.unwanted ? NotWanted() : CorruptImage("jpeg", reader_.message);
  }

 private:
  JpegReader reader_;
};

// `suspended`: the bytes end before the header does; only where they are not the whole picture.
bool TryReadHeader(JpegReader* reader, const Beginning& in, bool keep_exif, bool* suspended) {
  if (setjmp(reader->jump)) return false;
  jpeg_create_decompress(&reader->cinfo);
  reader->cinfo.progress = &reader->progress;
  jpeg_mem_src(&reader->cinfo, reinterpret_cast<const unsigned char*>(in.bytes.data()),
               in.bytes.size());
  if (!in.whole()) {
    reader->cinfo.src->fill_input_buffer = NoMoreBytes;
    reader->cinfo.src->skip_input_data = SkipBytes;
  }
  if (keep_exif) jpeg_save_markers(&reader->cinfo, JPEG_APP0 + 1, kExifMarkerBytes);
  *suspended = jpeg_read_header(&reader->cinfo, TRUE) == JPEG_SUSPENDED;
  return true;
}

// A file may end without its end marker, but not before the last block: with several scans, all
// read before the first row comes out, the library notices neither a component that never came nor
// bits that never came. To be called before jpeg_finish_decompress, which frees what is looked at.
void NoteMissingParts(JpegReader* reader) {
  const jpeg_decompress_struct& cinfo = reader->cinfo;
  for (int i = 0; i < cinfo.num_components; ++i) {
    if (cinfo.comp_info[i].quant_table == nullptr) reader->missing = "a colour component";
    if (!reader->no_end_marker || cinfo.coef_bits == nullptr) continue;
    for (int k = 0; k < DCTSIZE2; ++k) {
      if (cinfo.coef_bits[i][k] != 0) reader->missing = "its last scans";
    }
  }
}

// Decodes to `rows` of row_bytes each, then reads on to the end marker.
bool TryDecode(JpegReader* reader, J_COLOR_SPACE space, uint8_t* rows, size_t row_bytes) {
  if (setjmp(reader->jump)) return false;
  jpeg_decompress_struct* cinfo = &reader->cinfo;
  cinfo->out_color_space = space;
  cinfo->dct_method = JDCT_ISLOW;
  cinfo->do_fancy_upsampling = TRUE;
  jpeg_start_decompress(cinfo);
  while (cinfo->output_scanline < cinfo->output_height) {
    JSAMPROW row = rows + cinfo->output_scanline * row_bytes;
    jpeg_read_scanlines(cinfo, &row, 1);
  }
  NoteMissingParts(reader);
  jpeg_finish_decompress(cinfo);
  return true;
}

// One row of CMYK at a time, converted to RGB behind the library's back.
bool TryDecodeCmyk(JpegReader* reader, uint8_t* cmyk_row, uint8_t* rgb, size_t rgb_row_bytes) {
  if (setjmp(reader->jump)) return false;
  jpeg_decompress_struct* cinfo = &reader->cinfo;
  cinfo->out_color_space = JCS_CMYK;
  cinfo->dct_method = JDCT_ISLOW;
  jpeg_start_decompress(cinfo);
  while (cinfo->output_scanline < cinfo->output_height) {
    uint8_t* out = rgb + cinfo->output_scanline * rgb_row_bytes;
    JSAMPROW row = cmyk_row;
    jpeg_read_scanlines(cinfo, &row, 1);
    // Stored inverted: 255 is no ink. A channel is its lightness times that of black, divided by
    // 255 and rounded.
    for (unsigned x = 0; x < cinfo->output_width; ++x) {
      for (unsigned c = 0; c < 3; ++c) {
        const int light = cmyk_row[4 * x + 3];
        const int ink = (255 - cmyk_row[4 * x + c]) * light;
        const int rounded = (ink + 128 + ((ink + 128) >> 8)) >> 8;
        out[3 * x + c] = static_cast<uint8_t>(light > rounded ? light - rounded : 0);
      }
    }
  }
  NoteMissingParts(reader);
  jpeg_finish_decompress(cinfo);
  return true;
}

int OrientationOf(const jpeg_decompress_struct& cinfo) {
  for (const jpeg_marker_struct* m = cinfo.marker_list; m != nullptr; m = m->next) {
    const absl::string_view block(reinterpret_cast<const char*>(m->data), m->data_length);
    if (block.substr(0, 6) == absl::string_view("Exif\0\0", 6)) return ExifOrientation(block);
  }
  return 1;
}

// Result, one row beside it, and all coefficients at 2 bytes where several scans make the picture.
size_t EstimateBytes(jpeg_decompress_struct* cinfo, const ImageHeader& header) {
  double bytes_per_pixel = 3;
  if (jpeg_has_multiple_scans(cinfo)) {
    const double full = cinfo->max_h_samp_factor * cinfo->max_v_samp_factor;
    for (int i = 0; i < cinfo->num_components; ++i) {
      const jpeg_component_info& component = cinfo->comp_info[i];
      bytes_per_pixel += 2 * component.h_samp_factor * component.v_samp_factor / full;
    }
  }
  return BytesForPixels(header, bytes_per_pixel);
}

// The samples of a scan whose header, behind the length, is `head`: of its components, as the frame
// says. One that the frame does not know is the library's to refuse.
int64_t ScannedSamples(absl::string_view head, const jpeg_decompress_struct& cinfo) {
  const int64_t pixels = int64_t{cinfo.image_width} * cinfo.image_height;
  const int full = std::max(1, cinfo.max_h_samp_factor * cinfo.max_v_samp_factor);
  int64_t samples = 0;
  const size_t count = head.empty() ? 0 : static_cast<uint8_t>(head[0]);
  for (size_t i = 0; i < count && 1 + 2 * i < head.size(); ++i) {
    for (int c = 0; c < cinfo.num_components; ++c) {
      const jpeg_component_info& component = cinfo.comp_info[c];
      if (component.component_id != static_cast<uint8_t>(head[1 + 2 * i])) continue;
      samples += pixels * component.h_samp_factor * component.v_samp_factor / full;
    }
  }
  return samples;
}

// A scan costs a pass over all of its blocks, however few bytes it has: told by the markers alone
// (ITU-T T.81, B.1.1), before any is decoded.
absl::Status CheckScans(absl::string_view bytes, const jpeg_decompress_struct& cinfo) {
  int64_t samples = 0;
  int scans = 0;
  for (size_t at = 2; at + 4 <= bytes.size();) {
    const auto marker = static_cast<uint8_t>(bytes[at + 1]);
    // Entropy-coded bytes, fill bytes, and markers without a segment.
    if (bytes[at] != '\xff' || marker == 0 || marker == 0xff ||
        (marker >= 0xd0 && marker <= 0xd8)) {
      ++at;
      continue;
    }
    if (marker == 0xd9) break;
    const size_t length =
        static_cast<uint8_t>(bytes[at + 2]) << 8 | static_cast<uint8_t>(bytes[at + 3]);
    if (marker == 0xda) {
      samples += ScannedSamples(bytes.substr(at + 4, std::max<size_t>(length, 2) - 2), cinfo);
      if (++scans > kMaxScans || samples > kMaxScannedSamples) {
        return ImageError(
            "IMAGE_TOO_COMPLEX",
            absl::StrCat("the jpeg picture has ", scans, " scans or more, which hold ", samples,
                         " samples; the limits are ", kMaxScans, " and ", kMaxScannedSamples,
                         ": save it with fewer scans"));
      }
    }
    at += 2 + std::max<size_t>(length, 2);
  }
  return absl::OkStatus();
}

absl::Status Open(Jpeg& jpeg, const Beginning& in, bool keep_exif) {
  bool suspended = false;
  if (!TryReadHeader(jpeg.get(), in, keep_exif, &suspended)) return jpeg.Failure();
  return suspended ? MoreBytesNeeded() : absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImageHeader> ReadJpegHeader(const Beginning& in) {
  const StillWanted always;
  Jpeg jpeg(always);
  RETURN_IF_ERROR(Open(jpeg, in, /*keep_exif=*/true));
  jpeg_decompress_struct& cinfo = jpeg.get()->cinfo;
  ImageHeader header;
  header.stored_width = static_cast<int>(cinfo.image_width);
  header.stored_height = static_cast<int>(cinfo.image_height);
  header.orientation = OrientationOf(cinfo);
  header.channels = cinfo.num_components;
  header.bits = cinfo.data_precision;
  header.decode_bytes = EstimateBytes(&cinfo, header);
  if (header.bits != 8) {
    return UnsupportedImage("jpeg", absl::StrCat(header.bits, " bits per channel"));
  }
  if (header.channels != 1 && header.channels != 3 && header.channels != 4) {
    return UnsupportedImage("jpeg", absl::StrCat(header.channels, " colour components"));
  }
  return header;
}

absl::StatusOr<RgbImage> DecodeJpeg(absl::string_view bytes, const ImageHeader& header,
                                    const StillWanted& wanted) {
  Jpeg jpeg(wanted);
  RETURN_IF_ERROR(Open(jpeg, Whole(bytes), /*keep_exif=*/false));
  RETURN_IF_ERROR(CheckScans(bytes, jpeg.get()->cinfo));
  jpeg.get()->cinfo.mem->max_memory_to_use = static_cast<long>(header.decode_bytes + kSlackBytes);
  RgbImage image = BlankImage(header);
  const size_t row_bytes = static_cast<size_t>(header.stored_width) * 3;
  bool decoded = false;
  if (header.channels == 4) {
    std::vector<uint8_t> cmyk_row(static_cast<size_t>(header.stored_width) * 4);
    decoded = TryDecodeCmyk(jpeg.get(), cmyk_row.data(), image.rgb.data(), row_bytes);
  } else {
    decoded = TryDecode(jpeg.get(), JCS_RGB, image.rgb.data(), row_bytes);
  }
  if (!decoded) return jpeg.Failure();
  if (jpeg.get()->first_corruption != 0) return jpeg.Failure();
  if (jpeg.get()->missing != nullptr) {
    return CorruptImage("jpeg", absl::StrCat(jpeg.get()->missing, " never came"));
  }
  return image;
}

}  // namespace tessera::vision
