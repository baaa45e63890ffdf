#include "services/vision/encoder/held_records.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "common/base/digest.h"
#include "common/base/error.h"

namespace tessera::vision {
namespace {

store::RecordPtr RecordNamed(absl::string_view name) {
  auto record = std::make_shared<store::EmbeddingRecord>();
  record->key = store::EmbeddingKey(base::Sha256Of(name));
  record->data.resize(1000);
  return record;
}

TEST(HeldRecordsTest, BytesCountOnceForAKeyAndComeBackWithItsLastHolder) {
  HeldRecords all(1 << 20);
  const store::RecordPtr a = RecordNamed("a"), b = RecordNamed("b");
  std::optional<HeldRecords::Hold> first, second;
  first.emplace(all, a);
  second.emplace(all, a);
  EXPECT_EQ(all.bytes(), a->footprint());
  {
    const HeldRecords::Hold other(all, b);
    EXPECT_EQ(all.bytes(), a->footprint() + b->footprint());
  }
  first.reset();
  EXPECT_EQ(all.bytes(), a->footprint());
  second.reset();
  EXPECT_EQ(all.bytes(), 0u);
}

TEST(HeldRecordsTest, FullMeansNoOtherPictureUntilOneGoes) {
  HeldRecords all(1500);
  const store::RecordPtr a = RecordNamed("a"), b = RecordNamed("b"), c = RecordNamed("c");
  std::optional<HeldRecords::Hold> first, second;
  first.emplace(all, a);
  EXPECT_TRUE(all.Admit(b->key).ok());
  second.emplace(all, b);
  const absl::Status refused = all.Admit(c->key);
  EXPECT_EQ(base::ReasonOf(refused), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(refused).has_value());
  EXPECT_TRUE(all.Admit(a->key).ok());
  first.reset();
  EXPECT_TRUE(all.Admit(c->key).ok());
}

}  // namespace
}  // namespace tessera::vision
