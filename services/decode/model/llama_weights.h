#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "services/decode/model/tensor_names.h"

namespace tessera::decode {

// A matrix and its bias in device memory.
struct DeviceProjection {
  kernels::DeviceMatrix weight;
  kernels::DeviceVector bias;  // empty: none

  // out = x * weight^T + bias
  kernels::MatMulOut To(kernels::DeviceView out) const {
    return {&weight, bias.empty() ? nullptr : &bias, out};
  }
};

struct LlamaLayer {
  kernels::DeviceVector input_norm, post_attention_norm;
  DeviceProjection q, k, v, o, gate, up, down;
};

// A decoder's weights in device memory. Owned by the model; dies before the backend.
struct LlamaWeights {
  // INVALID_ARGUMENT names a tensor that holds NaN or infinity.
  static absl::StatusOr<LlamaWeights> Load(const DecoderTensors& tensors,
                                           kernels::Backend& backend);

  kernels::DeviceMatrix embedding;
  DeviceProjection untied_head;  // empty when the embedding serves as the head
  std::vector<LlamaLayer> layers;
  kernels::DeviceVector final_norm;

  const kernels::DeviceMatrix& head() const {
    return untied_head.weight.empty() ? embedding : untied_head.weight;
  }
};

}  // namespace tessera::decode
