#pragma once

#include "kernels/backend.h"

namespace tessera::kernels {

// What the host backends share of rotary and paged attention: the angles of one token, computed the
// same way on each, and the REQUIRES that a wrong plan would break (a CHECK names it).

// REQUIRES of RotaryAngles.
void CheckAngles(const RotaryAnglesParams& params);

// cos and sin of token `t` into [head_dim / 2] each. theta is a product in f32 (as the models that
// were trained computed it), its cosine and sine are taken in double.
void AnglesOfToken(const RotaryAnglesParams& params, int64_t t, float* cos, float* sin);

// REQUIRES of RotaryKvWrite; every slot lies inside the cache.
void CheckRotary(const RotaryKvParams& params, const KvCacheSpec& spec);

// REQUIRES of PagedAttention; every block that a sequence reads lies inside the cache.
void CheckPaged(const PagedAttentionParams& params, const KvCacheSpec& spec);

// REQUIRES of PackedAttention. Returns head_dim.
int CheckPacked(const PackedAttentionParams& params);

}  // namespace tessera::kernels
