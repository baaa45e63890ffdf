#include "services/vision/encoder/held_records.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

constexpr size_t kExpected = 1000;

std::unique_ptr<HeldRecords::Hold> Keep(HeldRecords& all, const store::RecordPtr& record) {
  auto hold = all.Admit(record->key, kExpected);
  EXPECT_TRUE(hold.ok()) << hold.status();
  if (!hold.ok()) return nullptr;
  (*hold)->Keep(record);
  return *std::move(hold);
}

TEST(HeldRecordsTest, BytesCountOnceForAKeyAndComeBackWithItsLastHolder) {
  HeldRecords all(1 << 20);
  const store::RecordPtr a = RecordNamed("a"), b = RecordNamed("b");
  auto first = Keep(all, a), second = Keep(all, a);
  EXPECT_EQ(all.bytes(), a->footprint());
  {
    const auto other = Keep(all, b);
    EXPECT_EQ(all.bytes(), a->footprint() + b->footprint());
  }
  first.reset();
  EXPECT_EQ(all.bytes(), a->footprint());
  second.reset();
  EXPECT_EQ(all.bytes(), 0u);
}

TEST(HeldRecordsTest, FullMeansNoOtherPictureUntilOneGoes) {
  const store::RecordPtr a = RecordNamed("a"), b = RecordNamed("b"), c = RecordNamed("c");
  HeldRecords all(a->footprint() + kExpected);
  auto first = Keep(all, a);
  auto made = all.Admit(b->key, kExpected);  // its record is being made
  ASSERT_TRUE(made.ok()) << made.status();
  const auto refused = all.Admit(c->key, kExpected);
  EXPECT_EQ(base::ReasonOf(refused.status()), "QUEUE_FULL");
  EXPECT_TRUE(base::RetryOf(refused.status()).has_value());
  EXPECT_TRUE(all.Admit(a->key, kExpected).ok());
  EXPECT_TRUE(all.Admit(b->key, kExpected).ok());
  first.reset();
  EXPECT_TRUE(all.Admit(c->key, kExpected).ok());
}

TEST(HeldRecordsTest, OneIsTakenHoweverLarge) {
  HeldRecords all(10);
  const auto hold = all.Admit(RecordNamed("a")->key, kExpected);
  EXPECT_TRUE(hold.ok());
  EXPECT_FALSE(all.Admit(RecordNamed("b")->key, 0).ok());
}

// However many ask at once, and whatever becomes of them.
TEST(HeldRecordsTest, NeverMoreIsHeldThanTheBound) {
  const size_t one = RecordNamed("a")->footprint();
  HeldRecords all(10 * one);
  std::atomic<int> admitted = 0;
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(thread);
      std::vector<std::unique_ptr<HeldRecords::Hold>> holds;
      for (int i = 0; i < 2000; ++i) {
        if (holds.size() > random() % 5) holds.erase(holds.begin());
        const store::RecordPtr record = RecordNamed(std::to_string(random() % 30));
        auto hold = all.Admit(record->key, one);
        if (hold.ok()) {
          ++admitted;
          if (random() % 2 == 0) (*hold)->Keep(record);
          holds.push_back(*std::move(hold));
        }
        EXPECT_LE(all.bytes(), 10 * one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(admitted, 0);
  EXPECT_EQ(all.bytes(), 0u);
}

}  // namespace
}  // namespace tessera::vision
