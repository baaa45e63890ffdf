#include <cmath>

#include "kernels/host/host_memory.h"
#include "kernels/reference/backend.h"

namespace tessera::kernels::reference {
namespace {

void Normalize(const DeviceView& x, bool center, const float* weight, const float* bias,
               float epsilon, const DeviceView& out) {
  const HostView from = Map(x), to = Map(out);
  CHECK(from.rows == to.rows && from.cols == to.cols);
  const int64_t cols = from.cols;
  for (int64_t i = 0; i < from.rows; ++i) {
    const float* row = from.row(i);
    double mean = 0, variance = 0;
    if (center) {
      for (int64_t j = 0; j < cols; ++j) mean += double{row[j]} / static_cast<double>(cols);
    }
    for (int64_t j = 0; j < cols; ++j) {
      variance += (row[j] - mean) * (row[j] - mean) / static_cast<double>(cols);
    }
    const double scale = 1 / std::sqrt(variance + double{epsilon});
    for (int64_t j = 0; j < cols; ++j) {
      const double shift = bias == nullptr ? 0.0 : double{bias[j]};
      to.row(i)[j] = static_cast<float>((row[j] - mean) * scale * double{weight[j]} + shift);
    }
  }
}

}  // namespace

void ReferenceBackend::RmsNorm(DeviceView x, const DeviceVector& weight, float epsilon,
                               DeviceView out) {
  CHECK_EQ(Object<HostVector>(weight).size(), x.cols);
  Normalize(x, false, Object<HostVector>(weight).data(), nullptr, epsilon, out);
}

void ReferenceBackend::LayerNorm(DeviceView x, const DeviceVector& weight, const DeviceVector& bias,
                                 float epsilon, DeviceView out) {
  CHECK_EQ(Object<HostVector>(weight).size(), x.cols);
  CHECK_EQ(Object<HostVector>(bias).size(), x.cols);
  Normalize(x, true, Object<HostVector>(weight).data(), Object<HostVector>(bias).data(), epsilon,
            out);
}

}  // namespace tessera::kernels::reference
