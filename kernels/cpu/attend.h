#pragma once

#include <cstdint>

#include "kernels/cpu/memory.h"

namespace tessera::kernels::cpu {

// Query rows that one task takes: (token, head of the group) pairs in this order.
inline constexpr int kMaxQueryRows = 24;

// Attention of some query rows over one kv head.
struct AttendJob {
  KvView kv;
  DType dtype = DType::kF32;  // of the keys and values
  HostView q, out;            // all tokens of the sequence, all heads
  int64_t first_column = 0;   // of the group's first head
  int group = 1;              // heads that share this kv head
  float scale = 0;
  int64_t begin = 0, end = 0;  // of token * group + head
  // Keys that token i sees: visible + i * visible_step.
  int64_t visible = 0;
  int64_t visible_step = 0;
};

// REQUIRES: 0 < end - begin <= kMaxQueryRows; head_dim <= kMaxHeadDim.
void Attend(const AttendJob& job);

}  // namespace tessera::kernels::cpu
