#include "services/decode/decode_options.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/error.h"

namespace tessera::decode {
namespace {

TEST(DecodeOptionsTest, DefaultsAreValid) { EXPECT_TRUE(DecodeOptions().Validate().ok()); }

TEST(DecodeOptionsTest, EveryDtypeOfTheCacheIsTaken) {
  DecodeOptions options;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kI8}) {
    options.kv_cache_dtype = dtype;
    EXPECT_TRUE(options.Validate().ok()) << Name(dtype);
  }
  options.kv_cache_zero_point = true;
  EXPECT_TRUE(options.Validate().ok());
}

TEST(DecodeOptionsTest, WhatCannotWorkIsRefusedByName) {
  const std::vector<std::pair<std::string, std::function<void(DecodeOptions&)>>> cases = {
      {"kv_cache_dtype", [](auto& o) { o.kv_cache_dtype = DType::kBF16; }},
      {"kv_cache_zero_point", [](auto& o) { o.kv_cache_zero_point = true; }},
      {"block_size", [](auto& o) { o.block_size = 0; }},
      {"block_size", [](auto& o) { o.block_size = 257; }},
      {"max_sequences", [](auto& o) { o.max_sequences = 0; }},
      {"max_batch_tokens", [](auto& o) { o.max_batch_tokens = o.max_sequences - 1; }},
      {"max_batch_tokens", [](auto& o) { o.max_batch_tokens = 1 << 30; }},
      {"max_waiting", [](auto& o) { o.max_waiting = -1; }},
      {"fetch_threads", [](auto& o) { o.fetch_threads = 0; }},
      {"prompt_threads", [](auto& o) { o.prompt_threads = 1000; }},
      {"max_ahead", [](auto& o) { o.max_ahead = -1; }},
      {"slow_client_timeout", [](auto& o) { o.slow_client_timeout = absl::ZeroDuration(); }},
      {"deadline_cap", [](auto& o) { o.deadline_cap = absl::ZeroDuration(); }},
  };
  for (const auto& [field, spoil] : cases) {
    DecodeOptions options;
    spoil(options);
    const absl::Status status = options.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(base::FieldOf(status), field);
  }
}

}  // namespace
}  // namespace tessera::decode
