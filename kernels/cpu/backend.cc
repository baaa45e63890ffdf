#include "kernels/cpu/backend.h"

#include "absl/strings/str_cat.h"
#include "kernels/cpu/memory.h"

namespace tessera::kernels::cpu {

std::string CpuBackend::name() const {
  const int threads = pool_.threads();
  return absl::StrCat("cpu (", TargetName(), ", ", threads,
                      threads == 1 ? " thread)" : " threads)");
}

absl::StatusOr<DeviceMatrix> CpuBackend::LoadMatrix(const TensorView& weight) {
  return Matrix::Load(weight, ledger_, pool_);
}

absl::StatusOr<KvCache> CpuBackend::MakeKvCache(const KvCacheSpec& spec) {
  return Cache::Make(spec, ledger_);
}

size_t CpuBackend::KvBytesPerBlock(const KvCacheSpec& spec) const {
  return Cache::BytesPerBlock(spec);
}

}  // namespace tessera::kernels::cpu
