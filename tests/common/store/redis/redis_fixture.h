#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/half.h"
#include "common/metrics/metrics.h"
#include "common/store/redis/redis_store.h"
#include "common/store/rows.h"

// What the tests of the Redis store share.
namespace tessera::store {

inline constexpr absl::Duration kLong = absl::Seconds(60);

inline EmbeddingKey NumberedKey(int number) {
  return EmbeddingKey(base::Sha256Of(absl::StrCat("picture ", number)));
}

// Rows that no other number has.
inline RecordPtr NumberedRecord(int number, int64_t rows = 4, int64_t width = 64) {
  std::mt19937 random(static_cast<uint32_t>(number));
  std::vector<float> values(static_cast<size_t>(rows * width));
  for (float& value : values) value = static_cast<float>(random() % 2000) / 100 - 10;
  auto record = std::make_shared<EmbeddingRecord>();
  record->key = NumberedKey(number);
  record->rows = rows;
  record->width = width;
  record->preprocessing = absl::StrCat("of ", number);
  record->data = *RowsFromF32(values, rows, width, DType::kF16);
  return record;
}

// One of many bytes, made at once: [rows, 4096].
inline RecordPtr LargeRecord(int number, int64_t rows) {
  auto record = std::make_shared<EmbeddingRecord>(*NumberedRecord(number, 1, 4096));
  const std::vector<std::byte> row = record->data;
  record->rows = rows;
  record->data.clear();
  record->data.reserve(static_cast<size_t>(rows) * row.size());
  for (int64_t i = 0; i < rows; ++i)
    record->data.insert(record->data.end(), row.begin(), row.end());
  return record;
}

// Times that a slow machine does not miss; a test of one sets it short.
inline RedisOptions PatientOptions(const std::string& url) {
  RedisOptions options;
  options.address = *ParseRedisUrl(url);
  options.connect_timeout = kLong;
  options.operation_timeout = kLong;
  options.min_backoff = absl::Milliseconds(1);
  options.max_backoff = absl::Milliseconds(20);
  options.ping_interval = absl::Hours(1);  // nothing goes on beside what the test does
  return options;
}

// A store that has its connection.
inline std::unique_ptr<RedisStore> OpenUp(RedisOptions options, metrics::Metrics& metrics) {
  auto store = RedisStore::Create(std::move(options), metrics);
  EXPECT_TRUE(store.ok()) << store.status();
  EXPECT_TRUE((*store)->WaitUntilUp(kLong));
  return *std::move(store);
}

inline std::string Key(int number) {
  return absl::StrCat("tessera:emb:v1:", NumberedKey(number).hex());
}

// The record under a key; null on a miss.
inline RecordPtr Find(EmbeddingStore& store, int number) {
  const auto found = store.Get(NumberedKey(number));
  return found.ok() && found->has_value() ? **found : nullptr;
}

inline bool Same(const RecordPtr& a, const RecordPtr& b) {
  return a != nullptr && b != nullptr && a->key == b->key && a->dtype == b->dtype &&
         a->rows == b->rows && a->width == b->width && a->data == b->data &&
         a->preprocessing == b->preprocessing;
}

// The value of a series of the text form; -1 where it is not there.
inline double Series(const metrics::Metrics& metrics, const std::string& labelled) {
  const std::string text = metrics.Text();
  const size_t at = text.find(labelled + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + labelled.size()));
}

inline double Lookups(const metrics::Metrics& metrics, const std::string& result) {
  return Series(metrics,
                absl::StrCat("tessera_embedding_cache_lookups_total{model_name=\"m\",result=\"",
                             result, "\",tier=\"store\"}"));
}

inline double FailedWrites(const metrics::Metrics& metrics, const std::string& reason) {
  return Series(
      metrics,
      absl::StrCat("tessera_embedding_cache_failed_writes_total{model_name=\"m\",reason=\"", reason,
                   "\"}"));
}

inline double UpGauge(const metrics::Metrics& metrics) {
  return Series(metrics, "tessera_embedding_cache_up{model_name=\"m\",tier=\"store\"}");
}

inline int CountOf(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace tessera::store
