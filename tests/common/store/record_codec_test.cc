#include "common/store/record_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/half.h"
#include "common/store/rows.h"
#include "xxhash.h"

namespace tessera::store {
namespace {

EmbeddingRecord SomeRecord(DType dtype = DType::kF16) {
  EmbeddingRecord record;
  record.key = EmbeddingKey(base::Sha256Of("picture"));
  record.dtype = dtype;
  record.rows = 2;
  record.width = 3;
  record.grid_height = 1;
  record.grid_width = 2;
  record.model_revision = "abc";
  record.preprocessing = "resize=336";
  record.created = absl::FromUnixMicros(1'700'000'000'123'456);
  record.quality = {{"contrast", 0.5}, {"sharpness", 12.25}};
  record.data = *RowsFromF32({1, -2, 3, 0.5f, 0, 7}, 2, 3, dtype);
  return record;
}

RecordExpectation Expect(const EmbeddingRecord& record) {
  return {record.key, record.dtype, record.rows, record.width};
}

RecordCodec Keyed(char c = 'k') { return *RecordCodec::WithKey(std::string(32, c)); }

RecordVerdict VerdictOn(const RecordCodec& codec, absl::string_view bytes,
                        const RecordExpectation& expected) {
  return VerdictOf(codec.Decode(bytes, expected).status());
}

// Puts a right XXH3 behind altered bytes: what a writer with other ideas would have stored.
std::string Reseal(std::string bytes) {
  bytes.resize(bytes.size() - 8);
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(hash >> (8 * i)));
  return bytes;
}

class RecordCodecTest : public ::testing::TestWithParam<bool> {
 protected:
  RecordCodec codec() const { return GetParam() ? Keyed() : RecordCodec(); }
};

TEST_P(RecordCodecTest, DecodeGivesBackWhatEncodeTook) {
  for (DType dtype : {DType::kF16, DType::kF32}) {
    const EmbeddingRecord record = SomeRecord(dtype);
    const auto bytes = codec().Encode(record);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(bytes->substr(0, 4), "TSR1");
    const auto back = codec().Decode(*bytes, Expect(record));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->key, record.key);
    EXPECT_EQ(back->dtype, record.dtype);
    EXPECT_EQ(back->rows, record.rows);
    EXPECT_EQ(back->width, record.width);
    EXPECT_EQ(back->grid_height, record.grid_height);
    EXPECT_EQ(back->grid_width, record.grid_width);
    EXPECT_EQ(back->model_revision, record.model_revision);
    EXPECT_EQ(back->preprocessing, record.preprocessing);
    EXPECT_EQ(back->created, record.created);
    EXPECT_EQ(back->quality, record.quality);
    EXPECT_EQ(back->data, record.data);
  }
}

TEST_P(RecordCodecTest, EverySingleBitFlipIsRefused) {
  const EmbeddingRecord record = SomeRecord();
  const std::string good = *codec().Encode(record);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bytes = good;
    bytes[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_NE(VerdictOn(codec(), bytes, Expect(record)), RecordVerdict::kGood) << "bit " << bit;
  }
}

TEST_P(RecordCodecTest, EveryCutAndEveryTailIsRefused) {
  const EmbeddingRecord record = SomeRecord();
  const std::string good = *codec().Encode(record);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_NE(VerdictOn(codec(), good.substr(0, size), Expect(record)), RecordVerdict::kGood);
  }
  EXPECT_NE(VerdictOn(codec(), good + '\0', Expect(record)), RecordVerdict::kGood);
  EXPECT_NE(VerdictOn(codec(), good + good, Expect(record)), RecordVerdict::kGood);
}

TEST_P(RecordCodecTest, SurvivesSeededMutations) {
  const google::protobuf::LogSilencer silence;  // it reports every text that is no UTF-8
  const EmbeddingRecord record = SomeRecord();
  const std::string good = *codec().Encode(record);
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes = good;
    for (int edits = 1 + random() % 4; edits > 0 && !bytes.empty(); --edits) {
      const size_t at = random() % bytes.size();
      if (random() % 2)
        bytes[at] = static_cast<char>(random());
      else if (random() % 2)
        bytes.erase(at, 1 + random() % 9);
      else
        bytes.insert(at, std::string(random() % 9, static_cast<char>(random())));
    }
    if (bytes == good) continue;
    ASSERT_FALSE(codec().Decode(bytes, Expect(record)).ok());
    // Behind a right checksum as well: a refusal or a record of the size it claims, never a crash.
    if (bytes.size() <= 8) continue;
    const auto resealed = RecordCodec().Decode(Reseal(bytes), Expect(record));
    if (resealed.ok()) {
      ASSERT_EQ(resealed->data.size(), resealed->view().bytes());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trailers, RecordCodecTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Gmac" : "Xxh3"; });

TEST(RecordVerdictTest, BrokenBytesAreDeleted) {
  const EmbeddingRecord record = SomeRecord();
  const std::string good = *RecordCodec().Encode(record);
  const auto verdict = [&record](const std::string& bytes) {
    return VerdictOn(RecordCodec(), bytes, Expect(record));
  };
  EXPECT_EQ(verdict(""), RecordVerdict::kBadMagic);
  EXPECT_EQ(verdict("TSR2" + good.substr(4)), RecordVerdict::kBadMagic);
  EXPECT_EQ(verdict("TSR1"), RecordVerdict::kBadLength);
  EXPECT_EQ(verdict("TSR1\xff\xff\xff\xff" + good.substr(8)), RecordVerdict::kBadLength);
  std::string flipped = good;
  flipped[good.size() - 12] ^= 1;  // a row
  EXPECT_EQ(verdict(flipped), RecordVerdict::kBadChecksum);
  std::string longer = good;
  longer.insert(good.size() - 9, 2, '\0');  // two bytes of rows too many
  EXPECT_EQ(verdict(Reseal(longer)), RecordVerdict::kBadLength);
  std::string header = good;
  header[8] = '\xff';  // the header's first tag
  EXPECT_EQ(verdict(Reseal(header)), RecordVerdict::kBadLength);
  for (RecordVerdict broken : {RecordVerdict::kBadMagic, RecordVerdict::kBadLength,
                               RecordVerdict::kBadChecksum, RecordVerdict::kNonfinite}) {
    EXPECT_TRUE(ShouldDelete(broken));
  }
}

TEST(RecordVerdictTest, RecordsOfOthersAreLeftAlone) {
  const EmbeddingRecord record = SomeRecord();
  const std::string xxh3 = *RecordCodec().Encode(record);
  const std::string gmac = *Keyed().Encode(record);
  const RecordExpectation expected = Expect(record);
  EXPECT_EQ(VerdictOn(Keyed(), xxh3, expected), RecordVerdict::kOtherTrailer);
  EXPECT_EQ(VerdictOn(Keyed('x'), gmac, expected), RecordVerdict::kBadMac);
  RecordExpectation other = expected;
  other.key = EmbeddingKey(base::Sha256Of("another picture"));
  EXPECT_EQ(VerdictOn(RecordCodec(), xxh3, other), RecordVerdict::kOtherKey);
  for (auto change :
       {+[](RecordExpectation& e) { e.dtype = DType::kF32; },
        +[](RecordExpectation& e) { e.rows = 3; }, +[](RecordExpectation& e) { e.width = 2; }}) {
    other = expected;
    change(other);
    EXPECT_EQ(VerdictOn(RecordCodec(), xxh3, other), RecordVerdict::kOtherShape);
  }
  for (RecordVerdict alone : {RecordVerdict::kOtherTrailer, RecordVerdict::kBadMac,
                              RecordVerdict::kOtherKey, RecordVerdict::kOtherShape}) {
    EXPECT_FALSE(ShouldDelete(alone));
  }
}

// A reader without the key must not take a sealed record for a broken one, whatever its tag holds.
TEST(RecordVerdictTest, NoGmacRecordEverLooksBrokenToAReaderWithoutTheKey) {
  const EmbeddingRecord record = SomeRecord();
  for (int round = 0; round < 2000; ++round) {
    ASSERT_EQ(VerdictOn(RecordCodec(), *Keyed().Encode(record), Expect(record)),
              RecordVerdict::kOtherTrailer);
  }
}

TEST(RecordVerdictTest, AnExpectationMayLeaveTheShapeOpen) {
  const EmbeddingRecord record = SomeRecord();
  EXPECT_TRUE(RecordCodec().Decode(*RecordCodec().Encode(record), {.key = record.key}).ok());
}

TEST(RecordCodecErrors, RowsThatAreNotFiniteAreNeitherWrittenNorRead) {
  EmbeddingRecord record = SomeRecord();
  const std::string good = *RecordCodec().Encode(record);
  record.data[1] = std::byte{0x7c};
  record.data[0] = std::byte{0};
  const absl::Status status = RecordCodec().Encode(record).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "NONFINITE_ROWS");
  std::string bytes = good;
  bytes[bytes.size() - 10] = '\x7f';  // the high byte of the last element
  EXPECT_EQ(VerdictOn(RecordCodec(), Reseal(bytes), Expect(record)), RecordVerdict::kNonfinite);
}

TEST(RecordCodecErrors, AKeyHas32Bytes) {
  EXPECT_EQ(base::ReasonOf(RecordCodec::WithKey("short").status()), "BAD_STORE_KEY");
}

TEST(RecordCodecErrors, AHeaderHasABound) {
  EmbeddingRecord record = SomeRecord();
  record.model_revision = std::string(100'000, 'r');
  EXPECT_EQ(base::ReasonOf(RecordCodec().Encode(record).status()), "RECORD_HEADER_TOO_LONG");
}

TEST(RecordCodecErrors, NoncesAreFresh) {
  EXPECT_NE(*Keyed().Encode(SomeRecord()), *Keyed().Encode(SomeRecord()));
  EXPECT_EQ(*RecordCodec().Encode(SomeRecord()), *RecordCodec().Encode(SomeRecord()));
}

}  // namespace
}  // namespace tessera::store
