// An embedding record. The first byte of an input chooses what the others are: a record as it lies
// in a store, or a header (behind its u16 length) and rows that are given magic, length and a right
// trailer here, so that the parser behind the trailer is reached. Odd: the reader has a key.
//
// A record that is taken survives Encode and Decode; one with another trailer than the reader's is
// never taken.
#include <google/protobuf/stubs/logging.h>

#include <string>

#include "common/base/check.h"
#include "common/store/record_codec.h"
#include "common/store/record_trailer.h"
#include "common/store/rows.h"
#include "tessera/v1/record.pb.h"
#include "tests/fuzz/check_refusal.h"

namespace tessera::fuzz {
namespace {

using store::EmbeddingRecord;
using store::RecordCodec;
using store::RecordExpectation;

const std::string& Key() {
  static const auto* key = new std::string(store::kMacKeyBytes, 'k');
  return *key;
}

std::string Sealed(absl::string_view input, bool keyed) {
  if (input.size() < 2) return std::string(input);
  const size_t wanted = static_cast<uint8_t>(input[0]) | static_cast<uint8_t>(input[1]) << 8;
  input.remove_prefix(2);
  const size_t header = std::min(wanted, input.size());
  std::string bytes = "TSR1";
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(header >> (8 * i)));
  bytes.append(input.data(), input.size());
  store::AppendTrailer(keyed ? Key() : "", bytes);
  return bytes;
}

// The key that the record itself names, where it can be read: a reader that waits for it.
RecordExpectation Expected(absl::string_view bytes) {
  RecordExpectation expected;
  const size_t head = RecordCodec::HeadBytes(bytes, bytes.size());
  v1::EmbeddingRecordHeader header;
  if (head == 0 || !header.ParseFromArray(bytes.data() + RecordCodec::kPrefixBytes,
                                          static_cast<int>(head - RecordCodec::kPrefixBytes))) {
    return expected;
  }
  const absl::StatusOr<store::EmbeddingKey> key = store::EmbeddingKey::FromBytes(header.key());
  if (key.ok()) expected.key = *key;
  return expected;
}

void CheckRoundTrip(const RecordCodec& codec, bool keyed, const EmbeddingRecord& record) {
  CHECK(record.rows >= 1 && record.width >= 1);
  CHECK_EQ(record.data.size(), store::RowBytes(record.dtype, record.rows, record.width));
  const absl::StatusOr<std::string> encoded = codec.Encode(record);
  if (!encoded.ok()) return CheckRefusal(encoded.status(), {"RECORD_HEADER_TOO_LONG"});
  const absl::StatusOr<EmbeddingRecord> again =
      codec.Decode(*encoded, {record.key, record.dtype, record.rows, record.width});
  CHECK(again.ok());
  CHECK(again->data == record.data);
  const absl::StatusOr<std::string> twice = codec.Encode(*again);
  CHECK(twice.ok());
  // With a key the nonce differs.
  if (!keyed) CHECK(*twice == *encoded);
}

void Run(absl::string_view input) {
  if (input.empty()) return;
  const int mode = input[0] & 3;
  const bool keyed = mode & 1;
  input.remove_prefix(1);
  const std::string bytes = mode & 2 ? Sealed(input, keyed) : std::string(input);
  const RecordCodec codec = keyed ? *RecordCodec::WithKey(Key()) : RecordCodec();
  const RecordCodec other = keyed ? RecordCodec() : *RecordCodec::WithKey(Key());
  const RecordExpectation expected = Expected(bytes);
  const absl::StatusOr<EmbeddingRecord> record = codec.Decode(bytes, expected);
  if (!record.ok()) {
    CHECK(store::VerdictOf(record.status()) != store::RecordVerdict::kGood);
    CheckRefusal(record.status(), {store::Name(store::VerdictOf(record.status()))});
    return;
  }
  CHECK(record->key == expected.key);
  CHECK(!other.Decode(bytes, expected).ok());
  CheckRoundTrip(codec, keyed, *record);
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);  // it tells of every text that is no UTF-8
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::Run(tessera::fuzz::Bytes(data, size));
  return 0;
}
