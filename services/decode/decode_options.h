#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/bytes.h"
#include "common/tensor/dtype.h"

namespace tessera::rpc {
class SpanExporter;
}

namespace tessera::decode {

// How a decode service is set up. Validated by DecodeRuntime::Create.
struct DecodeOptions {
  std::string model_dir;       // a Hugging Face directory
  std::string device = "cpu";  // as kernels::CreateBackend takes it
  // Device memory of the KV cache: so much, or a share of what is free once the weights are there;
  // at least one block.
  base::MemoryBudget kv_cache_bytes = {.bytes = 32ull << 20};
  DType kv_cache_dtype = DType::kF16;  // kF16, kF32 or kI8
  bool kv_cache_zero_point = false;    // kI8: a zero point beside the scale
  bool prefix_cache = true;            // keep KV blocks for prompts that begin alike
  size_t prefix_cache_bytes = std::numeric_limits<size_t>::max();  // of kv_cache_bytes, at most
  int32_t block_size = 16;                                         // tokens of a KV block; 1..256
  int32_t max_batch_tokens = 512;     // of one step; at least max_sequences, at most 65536
  int32_t max_sequences = 16;         // in one step; 1..1024
  int32_t max_waiting = 256;          // beyond those in the batch; more are refused
  int32_t fetch_threads = 4;          // reads of the store at a time; 1..64
  size_t fetch_bytes = 256ull << 20;  // rows being fetched at a time
  // Text of one answer that its client has not taken before the answer is paused.
  size_t sink_bytes = 64ull << 10;
  absl::Duration slow_client_timeout = absl::Seconds(10);  // paused so long: aborted
  int32_t max_ahead = 8;                         // prefills ahead of questions at a time; 0..64
  int32_t prompt_threads = 1;                    // templates and tokenizing; 1..64
  absl::Duration deadline_cap = absl::Hours(1);  // a missing or longer deadline becomes this

  rpc::SpanExporter* spans = nullptr;  // of sampled requests; outlives the service. Null: none

  absl::Status Validate() const;  // INVALID_ARGUMENT names the flag
};

}  // namespace tessera::decode
