#include "services/decode/decode_flags.h"

namespace tessera::decode {

using flags::Budget;
using flags::Bytes;
using flags::OneOf;
using flags::OnOff;
using flags::Value;

std::vector<flags::Flag> DecodeFlags(DecodeOptions& decode) {
  return {
      {"kv_cache_bytes", Budget(decode.kv_cache_bytes),
       "device memory of the KV cache; or a share of what is free, such as 40%"},
      {"kv_cache_dtype",
       OneOf<DType>(decode.kv_cache_dtype,
                    {{"f16", DType::kF16}, {"int8", DType::kI8}, {"f32", DType::kF32}}),
       "f16, int8 or f32"},
      {"kv_cache_zero_point", OnOff(decode.kv_cache_zero_point), "of int8, beside the scale"},
      {"prefix_cache", OnOff(decode.prefix_cache), "keep KV blocks for prompts that begin alike"},
      {"prefix_cache_bytes", Bytes(decode.prefix_cache_bytes), "of these, at most [no limit]"},
      {"block_size", Value(decode.block_size), "tokens of a KV block"},
      {"max_batch_tokens", Value(decode.max_batch_tokens), "of one step"},
      {"max_sequences", Value(decode.max_sequences), "answered at a time"},
      {"max_waiting", Value(decode.max_waiting), "requests that wait for a place"},
      {"max_ahead", Value(decode.max_ahead), "pictures read ahead of questions at a time"},
      {"slow_client_timeout", Value(decode.slow_client_timeout),
       "an answer that nobody reads for so long is aborted"},
  };
}

}  // namespace tessera::decode
