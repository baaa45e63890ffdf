#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/context.h"

namespace tessera::kernels::cpu {

// Keys go in groups of 64 that lie at fixed places of the sequence, with one running softmax per
// row and head: a row's result does not depend on its batch mates, its chunk or the threads. A key
// that a row does not see is left out, whatever its memory holds.
void PagedAttention(const PagedAttentionParams& params, Context& context);
void PackedAttention(const PackedAttentionParams& params, Context& context);

}  // namespace tessera::kernels::cpu
