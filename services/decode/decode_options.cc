#include "services/decode/decode_options.h"

#include "absl/strings/str_cat.h"
#include "common/base/check_range.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

absl::Status Refuse(absl::string_view field, absl::string_view value, absl::string_view allowed) {
  return base::BadField(field, "BAD_OPTION",
                        absl::StrCat(field, " = ", value, "; it must be ", allowed));
}

}  // namespace

absl::Status DecodeOptions::Validate() const {
  if (kv_cache_dtype != DType::kF16 && kv_cache_dtype != DType::kF32 &&
      kv_cache_dtype != DType::kI8) {
    return Refuse("kv_cache_dtype", Name(kv_cache_dtype), "f16, int8 or f32");
  }
  if (kv_cache_zero_point && kv_cache_dtype != DType::kI8) {
    return Refuse("kv_cache_zero_point", "on", "off unless kv_cache_dtype is int8");
  }
  RETURN_IF_ERROR(base::CheckRange("block_size", block_size, 1, 256));
  RETURN_IF_ERROR(base::CheckRange("max_sequences", max_sequences, 1, 1024));
  RETURN_IF_ERROR(base::CheckRange("max_batch_tokens", max_batch_tokens, max_sequences, 65536));
  RETURN_IF_ERROR(base::CheckRange("max_waiting", max_waiting, 0, 65536));
  RETURN_IF_ERROR(base::CheckRange("fetch_threads", fetch_threads, 1, 64));
  RETURN_IF_ERROR(base::CheckRange("prompt_threads", prompt_threads, 1, 64));
  RETURN_IF_ERROR(base::CheckRange("max_ahead", max_ahead, 0, 64));
  if (slow_client_timeout <= absl::ZeroDuration()) {
    return Refuse("slow_client_timeout", absl::FormatDuration(slow_client_timeout), "positive");
  }
  if (deadline_cap <= absl::ZeroDuration()) {
    return Refuse("deadline_cap", absl::FormatDuration(deadline_cap), "positive");
  }
  return absl::OkStatus();
}

}  // namespace tessera::decode
