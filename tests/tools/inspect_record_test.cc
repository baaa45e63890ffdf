#include "tools/inspect_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/store/record_codec.h"
#include "common/store/rows.h"
#include "tests/support/redis_server.h"
#include "tests/support/temp_dir.h"

namespace tessera::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

store::EmbeddingRecord SomeRecord() {
  store::EmbeddingRecord record;
  record.key = store::EmbeddingKey(base::Sha256Of("picture"));
  record.rows = 2;
  record.width = 3;
  record.grid_height = 1;
  record.grid_width = 2;
  record.model_revision = "abc";
  record.preprocessing = "resize=336";
  record.created = absl::FromUnixSeconds(1'700'000'000);
  record.quality = {{"contrast", 0.5}, {"sharpness", 12.25}};
  record.data = *store::RowsFromF32({1, -2, 3, 0.5f, 0, 7}, 2, 3, DType::kF16);
  return record;
}

class InspectRecordTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = dir_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  absl::Status Inspect(const InspectRecordOptions& options) {
    std::ostringstream out;
    const absl::Status status = InspectRecord(options, out);
    shown_ = out.str();
    return status;
  }

  const testing::TempDir dir_;
  const std::string good_ = *store::RecordCodec().Encode(SomeRecord());
  std::string shown_;
};

TEST_F(InspectRecordTest, AFileIsShownWithAllThatItSays) {
  const absl::Status status = Inspect({.path = Write("record", good_)});
  EXPECT_TRUE(status.ok()) << status;
  for (const std::string& part :
       {SomeRecord().key.hex(), std::string("2 of 3, RECORD_DTYPE_F16"), std::string("1 x 2"),
        std::string("abc"), std::string("resize=336"), std::string("2023-11-14T22:13:20"),
        std::string("contrast 0.5, sharpness 12.25"), absl::StrCat(good_.size(), " bytes"),
        std::string("RECORD_GOOD")}) {
    EXPECT_THAT(shown_, HasSubstr(part));
  }
}

TEST_F(InspectRecordTest, ABrokenOneIsShownAsFarAsItCanBeRead) {
  std::string flipped = good_;
  flipped[good_.size() - 12] ^= 1;
  EXPECT_EQ(base::ReasonOf(Inspect({.path = Write("record", flipped)})), "RECORD_BAD_CHECKSUM");
  EXPECT_THAT(shown_, AllOf(HasSubstr("resize=336"), HasSubstr("RECORD_BAD_CHECKSUM, deleted")));
  EXPECT_EQ(base::ReasonOf(Inspect({.path = Write("record", "hello")})), "RECORD_BAD_MAGIC");
  EXPECT_THAT(shown_, AllOf(HasSubstr("5 bytes"), HasSubstr("RECORD_BAD_MAGIC")));
}

TEST_F(InspectRecordTest, TheKeyFileDecidesWhichSealIsTaken) {
  const std::string sealed =
      *store::RecordCodec::WithKey(std::string(32, 'k'))->Encode(SomeRecord());
  const std::string path = Write("record", sealed);
  EXPECT_EQ(base::ReasonOf(Inspect({.path = path})), "RECORD_OTHER_TRAILER");
  EXPECT_TRUE(Inspect({.path = path, .key_file = Write("key", std::string(32, 'k'))}).ok());
  EXPECT_EQ(base::ReasonOf(Inspect({.path = path, .key_file = Write("key", "short")})),
            "BAD_STORE_KEY");
}

TEST_F(InspectRecordTest, ARecordIsFoundInRedisByItsKey) {
  const testing::RedisServer server;
  const std::string name = absl::StrCat("tessera:emb:v1:", SomeRecord().key.hex());
  server.Ask({"SET", name, good_});
  for (const std::string& key : {SomeRecord().key.hex(), name}) {
    const absl::Status status = Inspect({.redis = server.Url(), .key = key});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_THAT(shown_, AllOf(HasSubstr("resize=336"), HasSubstr("RECORD_GOOD")));
  }
  EXPECT_EQ(base::ReasonOf(Inspect({.redis = server.Url(), .key = std::string(64, '0')})),
            "RECORD_NOT_FOUND");
}

TEST_F(InspectRecordTest, WhatCannotBeAskedIsTold) {
  EXPECT_EQ(base::ReasonOf(Inspect({})), "BAD_OPTION");
  EXPECT_EQ(base::ReasonOf(Inspect({.path = "x", .redis = "redis://127.0.0.1:1"})), "BAD_OPTION");
  EXPECT_EQ(base::ReasonOf(Inspect({.redis = "redis://127.0.0.1:1", .key = "12"})), "BAD_OPTION");
  EXPECT_EQ(base::ReasonOf(Inspect({.redis = "redis:", .key = std::string(64, '0')})),
            "BAD_OPTION");
  EXPECT_EQ(base::ReasonOf(Inspect({.redis = "redis://127.0.0.1:1", .key = std::string(64, '0')})),
            "REDIS_UNREACHABLE");
  EXPECT_FALSE(Inspect({.path = dir_.path() + "/nowhere"}).ok());
}

}  // namespace
}  // namespace tessera::tools
