#pragma once

#include "common/base/compute_pool.h"
#include "kernels/backend.h"

namespace tessera::kernels::reference {

void PagedAttention(const PagedAttentionParams& params, base::ComputePool& pool);
void PackedAttention(const PackedAttentionParams& params, base::ComputePool& pool);

}  // namespace tessera::kernels::reference
