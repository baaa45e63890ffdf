#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/store/redis/redis_store.h"
#include "common/store/rows.h"
#include "tests/support/loopback.h"
#include "tests/support/redis_server.h"

// `store_bench [repetitions]`: a record of 1024 x 4096 read from a local Redis, checked and handed
// over, beside the bare GET of the same bytes into memory that is there already. Each repetition
// times all variants, one after another; ratios are medians of the ratios in a repetition.
namespace tessera::store {
namespace {

constexpr int64_t kRows = 1024;
constexpr int64_t kWidth = 4096;

double MillisecondsOf(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double Quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

RecordPtr MakeRecord(DType dtype) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(kRows * kWidth);
  for (float& value : values) value = normal(random);
  auto record = std::make_shared<EmbeddingRecord>();
  record->key = EmbeddingKey(base::Sha256Of(Name(dtype)));
  record->rows = kRows;
  record->width = kWidth;
  StoredRows stored = *MakeRows(values, kRows, kWidth, dtype);
  CHECK(stored.dtype == dtype);
  record->dtype = stored.dtype;
  record->data = std::move(stored.data);
  return record;
}

// What a client that checks nothing would take.
class BareClient {
 public:
  explicit BareClient(int port) : fd_(testing::ConnectTo(port)), buffer_(64 << 20) {}

  size_t Get(const std::string& key) {
    const std::string command =
        absl::StrCat("*2\r\n$3\r\nGET\r\n$", key.size(), "\r\n", key, "\r\n");
    CHECK(testing::SendAll(fd_.get(), command));
    size_t size = 0;
    size_t expected = 0;
    while (expected == 0 || size < expected) {
      const ssize_t got = recv(fd_.get(), buffer_.data() + size, buffer_.size() - size, 0);
      CHECK(got > 0);
      size += static_cast<size_t>(got);
      const void* end = expected == 0 ? std::memchr(buffer_.data(), '\n', size) : nullptr;
      if (end == nullptr) continue;
      const size_t line = static_cast<const char*>(end) - buffer_.data() + 1;
      expected = line + std::strtoull(buffer_.data() + 1, nullptr, 10) + 2;
    }
    return size;
  }

 private:
  const testing::Fd fd_;
  std::vector<char> buffer_;
};

void Print(const char* name, const std::vector<double>& times, const std::vector<double>& bare) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.size(); ++i) ratios.push_back(times[i] / bare[i]);
  std::cout << absl::StreamFormat("  %-28s median %6.2f ms, p90 %6.2f ms, %5.2f x the bare GET\n",
                                  name, Quantile(times, 0.5), Quantile(times, 0.9),
                                  Quantile(ratios, 0.5));
}

void Run(DType dtype, int repetitions, const testing::RedisServer& server) {
  metrics::Metrics metrics("bench");
  RedisOptions options;
  options.address = *ParseRedisUrl(server.Url());
  options.connect_timeout = options.operation_timeout = absl::Seconds(10);
  const auto store = *RedisStore::Create(options, metrics);
  RedisOptions keyed = options;
  keyed.codec = *RecordCodec::WithKey(std::string(32, 'k'));
  keyed.address.database = 1;
  const auto keyed_store = *RedisStore::Create(keyed, metrics);
  CHECK(store->WaitUntilUp(absl::Seconds(10)) && keyed_store->WaitUntilUp(absl::Seconds(10)));
  const RecordPtr record = MakeRecord(dtype);
  CHECK(keyed_store->Put(record, absl::ZeroDuration()).ok());
  const std::string key = absl::StrCat("tessera:emb:v1:", record->key.hex());
  BareClient bare(server.port());
  std::vector<double> put, get, get_keyed, to_device, wire;
  for (int i = 0; i < repetitions + 3; ++i) {
    put.push_back(MillisecondsOf([&] { CHECK(store->Put(record, absl::ZeroDuration()).ok()); }));
    wire.push_back(MillisecondsOf([&] { bare.Get(key); }));
    RecordPtr found;
    get.push_back(MillisecondsOf([&] { found = **store->Get(record->key); }));
    CHECK(found->data == record->data);
    to_device.push_back(MillisecondsOf([&] { ToFloatRows(found); }));
    found.reset();
    get_keyed.push_back(MillisecondsOf([&] { found = **keyed_store->Get(record->key); }));
  }
  for (auto* times : {&put, &get, &get_keyed, &to_device, &wire}) {
    times->erase(times->begin(), times->begin() + 3);  // the first warm up
  }
  std::cout << absl::StreamFormat("%s, %.2f MiB\n", std::string(Name(dtype)),
                                  static_cast<double>(record->data.size()) / (1 << 20));
  Print("bare GET", wire, wire);
  Print("Get", get, wire);
  Print("Get, GMAC", get_keyed, wire);
  Print("ToFloatRows", to_device, wire);
  Print("Put", put, wire);
}

}  // namespace
}  // namespace tessera::store

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::atoi(argv[1]) : 50;
  const tessera::testing::RedisServer server;
  for (const tessera::DType dtype : {tessera::DType::kF16, tessera::DType::kI8}) {
    tessera::store::Run(dtype, repetitions, server);
  }
}
