#include "common/store/embedding_key.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::store {
namespace {

KeyFields SomeFields() {
  KeyFields fields;
  fields.tenant = "tenant";
  fields.image_digest = base::Sha256Of("image");
  fields.preprocessing = "resize=336 bicubic; mean=0.48";
  fields.weights_digest = base::Sha256Of("weights");
  fields.compute_dtype = DType::kF32;
  fields.row_budget = 576;
  fields.reduction = "pool";
  fields.conditioning = "question";
  fields.record_dtype = DType::kF16;
  return fields;
}

TEST(EmbeddingKeyTest, EachFieldAloneMakesAnotherKey) {
  const std::function<void(KeyFields&)> changes[] = {
      [](KeyFields& f) { f.format_version += 1; },
      [](KeyFields& f) { f.tenant += "2"; },
      [](KeyFields& f) { f.image_digest[31] ^= 1; },
      [](KeyFields& f) { f.preprocessing += "1"; },
      [](KeyFields& f) { f.weights_digest[0] ^= 0x80; },
      [](KeyFields& f) { f.compute_dtype = DType::kF16; },
      [](KeyFields& f) { f.row_budget = 144; },
      [](KeyFields& f) { f.reduction = "merge"; },
      [](KeyFields& f) { f.conditioning = "another question"; },
      [](KeyFields& f) { f.record_dtype = DType::kF32; },
  };
  std::set<EmbeddingKey> keys = {MakeKey(SomeFields())};
  for (const auto& change : changes) {
    KeyFields fields = SomeFields();
    change(fields);
    EXPECT_TRUE(keys.insert(MakeKey(fields)).second) << "change " << keys.size();
  }
  EXPECT_EQ(MakeKey(SomeFields()), MakeKey(SomeFields()));
}

TEST(EmbeddingKeyTest, NeighbouringFieldsDoNotRunTogether) {
  KeyFields a = SomeFields(), b = SomeFields();
  a.reduction = "pool", a.conditioning = "2x";
  b.reduction = "pool2", b.conditioning = "x";
  EXPECT_NE(MakeKey(a), MakeKey(b));
  a.reduction = "x", a.conditioning = "";
  b.reduction = "", b.conditioning = "x";
  EXPECT_NE(MakeKey(a), MakeKey(b));
  // A field that imitates the length prefix of its neighbour.
  a.reduction = std::string("x\1\0\0\0\0\0\0\0y", 10), a.conditioning = "z";
  b.reduction = "x", b.conditioning = std::string("y\1\0\0\0\0\0\0\0z", 10);
  EXPECT_NE(MakeKey(a), MakeKey(b));
}

// The text form is public (Redis keys): it must not change without a new format version.
TEST(EmbeddingKeyTest, TheDigestIsThatOfTheDocumentedBytes) {
  const KeyFields fields = SomeFields();
  std::string bytes;
  const auto append = [&bytes](absl::string_view field) {
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(uint64_t{field.size()} >> 8 * i));
    absl::StrAppend(&bytes, field);
  };
  const auto text = [](const base::Sha256Digest& digest) {
    return std::string(digest.begin(), digest.end());
  };
  append("1");
  append("tenant");
  append(text(base::Sha256Of("image")));
  append("resize=336 bicubic; mean=0.48");
  append(text(base::Sha256Of("weights")));
  append("F32");
  append("576");
  append("pool");
  append("question");
  append("F16");
  EXPECT_EQ(MakeKey(fields).digest(), base::Sha256Of(bytes));
}

TEST(EmbeddingKeyTest, HexIsLowerCaseAndWhole) {
  const std::string hex = MakeKey(SomeFields()).hex();
  EXPECT_EQ(hex.size(), 64u);
  EXPECT_EQ(hex, absl::AsciiStrToLower(hex));
  EXPECT_EQ(*base::DigestFromHex(hex), MakeKey(SomeFields()).digest());
}

TEST(EmbeddingKeyTest, BytesGoThereAndBack) {
  const EmbeddingKey key = MakeKey(SomeFields());
  EXPECT_EQ(*EmbeddingKey::FromBytes(key.bytes()), key);
  for (size_t size : {0, 16, 31, 33}) {
    EXPECT_EQ(base::ReasonOf(EmbeddingKey::FromBytes(std::string(size, 'x')).status()),
              "BAD_EMBEDDING_KEY");
  }
}

// FAULTS B035: the same file under other settings is another record.
TEST(EmbeddingKeyTest, TheSameFileUnderOtherSettingsIsAnotherRecord) {
  absl::flat_hash_set<EmbeddingKey> keys;
  const auto add = [&keys](auto change) {
    KeyFields fields = SomeFields();
    change(fields);
    keys.insert(MakeKey(fields));
  };
  add([](KeyFields& f) { f.row_budget = 144; });
  add([](KeyFields& f) { f.row_budget = 576; });
  add([](KeyFields& f) { f.preprocessing = "background=white"; });
  add([](KeyFields& f) { f.preprocessing = "background=black"; });
  add([](KeyFields& f) { f.preprocessing = "max_tiles=4"; });
  add([](KeyFields& f) { f.preprocessing = "max_tiles=12"; });
  add([](KeyFields& f) { f.weights_digest = base::Sha256Of("another tower"); });
  add([](KeyFields& f) { f.compute_dtype = DType::kF16; });
  add([](KeyFields& f) { f.format_version = kFormatVersion + 1; });
  EXPECT_EQ(keys.size(), 9u);
}

// FAULTS B036: pictures whose keys agree in some digits are still two pictures.
TEST(EmbeddingKeyTest, KeysThatAgreeInTheirLastDigitsAreTwoKeys) {
  std::mt19937_64 random(36);
  std::map<std::string, EmbeddingKey> by_tail;
  int agreeing = 0;
  while (agreeing < 3) {
    KeyFields fields = SomeFields();
    fields.image_digest = base::Sha256Of(absl::StrCat("image ", random()));
    const EmbeddingKey key = MakeKey(fields);
    const auto [it, inserted] = by_tail.emplace(key.hex().substr(60), key);
    if (inserted) continue;
    ++agreeing;
    EXPECT_NE(it->second, key);
  }
}

// FAULTS B039, B040: content decides, all of it: not an id inside the file, not its first bytes.
TEST(EmbeddingKeyTest, EveryByteOfThePictureCounts) {
  const std::string start = absl::StrCat("EXIF image id 7;", std::string(4096, 'x'));
  KeyFields a = SomeFields(), b = SomeFields();
  a.image_digest = base::Sha256Of(start + "first");
  b.image_digest = base::Sha256Of(start + "second");
  EXPECT_NE(MakeKey(a), MakeKey(b));
}

}  // namespace
}  // namespace tessera::store
