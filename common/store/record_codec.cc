#include "common/store/record_codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/store/record_trailer.h"
#include "common/store/rows.h"
#include "tessera/v1/record.pb.h"

namespace tessera::store {
namespace {

using v1::EmbeddingRecordHeader;

constexpr absl::string_view kMagic = "TSR1";
constexpr size_t kMaxHeaderBytes = size_t{64} << 10;
constexpr size_t kMaxTrailerBytes = 29;

uint32_t ReadU32(absl::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

absl::StatusOr<DType> FromProto(v1::RecordDtype dtype) {
  switch (dtype) {
    case v1::RECORD_DTYPE_F32:
      return DType::kF32;
    case v1::RECORD_DTYPE_F16:
      return DType::kF16;
    case v1::RECORD_DTYPE_I8:
      return DType::kI8;
    default:
      return Refuse(RecordVerdict::kOtherShape,
                    absl::StrCat("dtype ", static_cast<int>(dtype), " is not known here"));
  }
}

v1::RecordDtype ToProto(DType dtype) {
  if (dtype == DType::kI8) return v1::RECORD_DTYPE_I8;
  return dtype == DType::kF32 ? v1::RECORD_DTYPE_F32 : v1::RECORD_DTYPE_F16;
}

std::string SerializedHeader(const EmbeddingRecord& record) {
  EmbeddingRecordHeader header;
  header.set_key(record.key.bytes().data(), record.key.bytes().size());
  header.set_rows(static_cast<uint32_t>(record.rows));
  header.set_width(static_cast<uint32_t>(record.width));
  header.set_dtype(ToProto(record.dtype));
  header.set_scales_present(record.dtype == DType::kI8);
  header.set_grid_height(static_cast<uint32_t>(record.grid_height));
  header.set_grid_width(static_cast<uint32_t>(record.grid_width));
  header.set_model_revision(record.model_revision);
  header.set_preprocessing(record.preprocessing);
  header.set_created_unix_micros(absl::ToUnixMicros(record.created));
  for (const auto& [name, score] : record.quality) (*header.mutable_quality())[name] = score;
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // equal records are equal bytes
    CHECK(header.SerializeToCodedStream(&coded));
  }
  return bytes;
}

absl::Status CheckHeader(const EmbeddingRecordHeader& header, size_t rows_bytes,
                         const RecordExpectation& expected) {
  if (header.key() != expected.key.bytes()) {
    return Refuse(RecordVerdict::kOtherKey, "it belongs to another key");
  }
  ASSIGN_OR_RETURN(const DType dtype, FromProto(header.dtype()));
  const auto fits = [](auto value, const auto& wanted) { return !wanted || *wanted == value; };
  if (header.scales_present() != (dtype == DType::kI8) || !fits(dtype, expected.dtype) ||
      !fits(int64_t{header.rows()}, expected.rows) ||
      !fits(int64_t{header.width()}, expected.width)) {
    return Refuse(RecordVerdict::kOtherShape,
                  absl::StrCat(tessera::Name(dtype), " [", header.rows(), ", ", header.width(),
                               "] is not what is expected"));
  }
  // Products of two 32-bit numbers and 5 bytes a value: looked at before they can overflow.
  const uint64_t elements = uint64_t{header.rows()} * header.width();
  if (elements == 0 || elements > rows_bytes ||
      rows_bytes != RowBytes(dtype, header.rows(), header.width())) {
    return Refuse(RecordVerdict::kBadLength,
                  absl::StrCat("its rows have ", rows_bytes, " bytes, not those of [",
                               header.rows(), ", ", header.width(), "]"));
  }
  return absl::OkStatus();
}

// Whether the first bytes of `total` are those of a record whose header fits.
absl::Status CheckPrefix(absl::string_view prefix, size_t total) {
  if (prefix.substr(0, kMagic.size()) != kMagic) {
    return Refuse(RecordVerdict::kBadMagic, "it does not begin with TSR1");
  }
  if (total < RecordCodec::kPrefixBytes + kMinTrailerBytes) {
    return Refuse(RecordVerdict::kBadLength, absl::StrCat(total, " bytes are too few"));
  }
  const size_t header_bytes = ReadU32(prefix.substr(kMagic.size()));
  if (header_bytes > kMaxHeaderBytes ||
      header_bytes > total - RecordCodec::kPrefixBytes - kMinTrailerBytes) {
    return Refuse(RecordVerdict::kBadLength,
                  absl::StrCat("a header of ", header_bytes, " bytes does not fit"));
  }
  return absl::OkStatus();
}

// All but the rows. REQUIRES: CheckHeader took it.
absl::Status FromHeader(const EmbeddingRecordHeader& header, EmbeddingRecord& record) {
  ASSIGN_OR_RETURN(record.key, EmbeddingKey::FromBytes(header.key()));
  ASSIGN_OR_RETURN(record.dtype, FromProto(header.dtype()));
  record.rows = header.rows();
  record.width = header.width();
  record.grid_height = header.grid_height();
  record.grid_width = header.grid_width();
  record.model_revision = header.model_revision();
  record.preprocessing = header.preprocessing();
  record.created = absl::FromUnixMicros(header.created_unix_micros());
  record.quality.insert(header.quality().begin(), header.quality().end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RecordCodec> RecordCodec::WithKey(absl::string_view key) {
  if (key.size() != kMacKeyBytes) {
    return base::Error(absl::StatusCode::kInvalidArgument, "BAD_STORE_KEY",
                       absl::StrCat("the embedding store's key has ", key.size(), " bytes; ",
                                    kMacKeyBytes, " random bytes are needed"));
  }
  RecordCodec codec;
  codec.mac_key_ = std::string(key);
  return codec;
}

absl::StatusOr<std::string> RecordCodec::Encode(const EmbeddingRecord& record) const {
  CHECK(record.rows >= 1 && record.width >= 1);
  CHECK_EQ(record.data.size(), RowBytes(record.dtype, record.rows, record.width));
  RETURN_IF_ERROR(CheckRows(record.data, record.rows, record.width, record.dtype));
  const std::string header = SerializedHeader(record);
  if (header.size() > kMaxHeaderBytes) {
    return base::Error(absl::StatusCode::kInvalidArgument, "RECORD_HEADER_TOO_LONG",
                       absl::StrCat("an embedding record's header of ", header.size(),
                                    " bytes; the limit is ", kMaxHeaderBytes));
  }
  std::string out;
  out.reserve(kPrefixBytes + header.size() + record.data.size() + kMaxTrailerBytes);
  out.append(kMagic.data(), kMagic.size());
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(header.size() >> (8 * i)));
  out.append(header);
  out.append(reinterpret_cast<const char*>(record.data.data()), record.data.size());
  AppendTrailer(mac_key_, out);
  return out;
}

size_t RecordCodec::MostBytes(int64_t rows, int64_t width) {
  // Of f32; int8 with a scale for each row has no more.
  const auto row_bytes = static_cast<size_t>(std::max<int64_t>(4 * width, width + 4));
  return kPrefixBytes + kMaxHeaderBytes + static_cast<size_t>(rows) * row_bytes + kMaxTrailerBytes;
}

size_t RecordCodec::HeadBytes(absl::string_view prefix, size_t total) {
  return CheckPrefix(prefix, total).ok() ? kPrefixBytes + ReadU32(prefix.substr(kMagic.size())) : 0;
}

absl::StatusOr<EmbeddingRecord> RecordCodec::Decode(absl::string_view bytes,
                                                    const RecordExpectation& expected) const {
  RecordPieces pieces;
  pieces.head = std::string(bytes.substr(0, HeadBytes(bytes, bytes.size())));
  const auto* body = reinterpret_cast<const std::byte*>(bytes.data()) + pieces.head.size();
  pieces.body.assign(body, body + bytes.size() - pieces.head.size());
  return Decode(std::move(pieces), expected);
}

absl::StatusOr<EmbeddingRecord> RecordCodec::Decode(RecordPieces pieces,
                                                    const RecordExpectation& expected) const {
  const absl::string_view body(reinterpret_cast<const char*>(pieces.body.data()),
                               pieces.body.size());
  if (pieces.head.empty()) {
    RETURN_IF_ERROR(CheckPrefix(body, body.size()));
    return Refuse(RecordVerdict::kBadLength, "it was cut in the wrong place");
  }
  ASSIGN_OR_RETURN(const size_t rows_bytes, CheckTrailer(mac_key_, pieces.head, body));
  EmbeddingRecordHeader header;
  if (!header.ParseFromArray(pieces.head.data() + kPrefixBytes,
                             static_cast<int>(pieces.head.size() - kPrefixBytes))) {
    return Refuse(RecordVerdict::kBadLength, "its header cannot be read");
  }
  RETURN_IF_ERROR(CheckHeader(header, rows_bytes, expected));
  EmbeddingRecord record;
  RETURN_IF_ERROR(FromHeader(header, record));
  pieces.body.resize(rows_bytes);
  record.data = std::move(pieces.body);
  const absl::Status good = CheckRows(record.data, record.rows, record.width, record.dtype);
  if (!good.ok()) return Refuse(RecordVerdict::kNonfinite, good.message());
  return record;
}

}  // namespace tessera::store
