#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "services/decode/model/decoder_config.h"

namespace tessera::decode {

// Activations of a step in device memory: grows when a plan is larger than any before, never
// shrinks. Engine thread only.
class Workspace {
 public:
  // Dense views for a step of `tokens` tokens and `logits` rows of logits; they borrow the
  // workspace and are good until it grows.
  struct Views {
    kernels::DeviceView hidden, normed;  // [tokens, hidden]
    kernels::DeviceView q, attended;     // [tokens, heads * head_dim]
    kernels::DeviceView k, v;            // [tokens, kv_heads * head_dim]
    kernels::DeviceView gate, up;        // [tokens, intermediate]; share memory with q ... v
    kernels::DeviceView cos, sin;        // [tokens, head_dim / 2]
    kernels::DeviceView last;            // [logits, hidden]
    kernels::DeviceView logits;          // [logits, vocab]
  };

  // Waits for the device before memory in use is given back. RESOURCE_EXHAUSTED: no memory; the
  // old room is gone then, and the next call asks again.
  absl::Status Reserve(int64_t tokens, int64_t logits, const DecoderConfig& config,
                       kernels::Backend& backend);

  // REQUIRES: Reserve of at least as much.
  Views For(int64_t tokens, int64_t logits, const DecoderConfig& config) const;

 private:
  kernels::DeviceBuffer per_token_;
  kernels::DeviceBuffer per_logit_;
  int64_t tokens_ = 0;
  int64_t logits_ = 0;
};

}  // namespace tessera::decode
