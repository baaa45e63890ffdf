#include "kernels/reference/backend.h"

#include "kernels/reference/memory.h"

namespace tessera::kernels::reference {

absl::StatusOr<DeviceMatrix> ReferenceBackend::LoadMatrix(const TensorView& weight) {
  return Matrix::Load(weight, ledger_);
}

absl::StatusOr<KvCache> ReferenceBackend::MakeKvCache(const KvCacheSpec& spec) {
  return Cache::Make(spec, ledger_);
}

size_t ReferenceBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return Cache::BytesPerBlock(spec);
}

}  // namespace tessera::kernels::reference
