#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/weights/canary_file.h"
#include "kernels/backend.h"
#include "services/decode/model/decoder_config.h"
#include "services/decode/model/step_model.h"

// Decode's part of the canary: what the decoder says to stored rows. The caller's thread uses model
// and backend; a KV cache is made for it and given back.
namespace tessera::decode {

// What runs the prompt. Borrows all; `spec` is that of the cache to be tested, its blocks ignored.
struct CanaryDevice {
  const DecoderConfig& config;
  StepModel& model;
  kernels::Backend& backend;
  kernels::KvCacheSpec spec;
  int64_t step_tokens = 512;  // of one step at most
};

// `steps` greedy tokens behind `prompt`, where -1 stands for the next of `rows` (f32). The end
// token does not end them. INVALID_ARGUMENT (CANARY_BAD) when ids or rows are not the model's, or
// the context is too short; INTERNAL (NONFINITE_LOGITS); the device's errors.
absl::StatusOr<weights::CanaryAnswer> AnswerCanary(const CanaryDevice& device,
                                                   absl::Span<const int32_t> prompt,
                                                   const Tensor& rows, int steps);

// Whether the two answers differ for sure: at their first difference, and at every step before it,
// both have a lead that no dtype here can take away. A canary without that proves nothing.
bool TellsSightFromGrey(const weights::CanaryAnswer& answer, const weights::CanaryAnswer& grey);

// The lead of the best logit, in spreads of all, below which another token may be chosen.
double CanaryLead(DType compute_dtype, DType kv_dtype);

// Feeds the picture's rows, then the grey ones. FAILED_PRECONDITION: CANARY_BLIND when the answers
// are the same, CANARY_FAILED when one is other than that of the reference, in words for /readyz.
absl::Status CheckCanary(const weights::Canary& canary, const CanaryDevice& device,
                         DType compute_dtype);

}  // namespace tessera::decode
