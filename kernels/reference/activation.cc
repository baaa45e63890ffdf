#include "kernels/reference/activation.h"

#include <cmath>
#include <numbers>

#include "common/base/check.h"
#include "kernels/host/host_memory.h"
#include "kernels/reference/backend.h"

namespace tessera::kernels::reference {

double Activate(Activation activation, double x) {
  switch (activation) {
    case Activation::kNone:
      return x;
    case Activation::kRelu:
      return x < 0 ? 0 : x;  // NaN stays
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * inner));  // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u))
    }
    case Activation::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

void ReferenceBackend::GatedActivation(DeviceView gate, DeviceView up, Activation activation,
                                       DeviceView out) {
  const HostView gates = Map(gate), ups = Map(up), outs = Map(out);
  CHECK(gates.rows == outs.rows && ups.rows == outs.rows);
  CHECK(gates.cols == outs.cols && ups.cols == outs.cols);
  for (int64_t i = 0; i < outs.rows; ++i) {
    for (int64_t j = 0; j < outs.cols; ++j) {
      outs.row(i)[j] =
          static_cast<float>(Activate(activation, gates.row(i)[j]) * double{ups.row(i)[j]});
    }
  }
}

}  // namespace tessera::kernels::reference
