#include "services/decode/model/llama_weights.h"

#include "common/base/status_macros.h"
#include "common/weights/finite.h"

namespace tessera::decode {
namespace {

using kernels::Backend;

absl::StatusOr<kernels::DeviceMatrix> LoadMatrix(const NamedTensor& tensor, Backend& backend) {
  RETURN_IF_ERROR(weights::CheckFinite(tensor.name, tensor.view));
  return backend.LoadMatrix(tensor.view);
}

absl::StatusOr<kernels::DeviceVector> LoadVector(const NamedTensor& tensor, Backend& backend) {
  RETURN_IF_ERROR(weights::CheckFinite(tensor.name, tensor.view));
  return backend.LoadVector(tensor.view);
}

absl::Status LoadProjection(const Projection& source, Backend& backend, DeviceProjection& out) {
  ASSIGN_OR_RETURN(out.weight, LoadMatrix(source.weight, backend));
  if (source.bias.view.data != nullptr) {
    ASSIGN_OR_RETURN(out.bias, LoadVector(source.bias, backend));
  }
  return absl::OkStatus();
}

absl::StatusOr<LlamaLayer> LoadLayer(const LayerTensors& source, Backend& backend) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, LoadVector(source.input_norm, backend));
  ASSIGN_OR_RETURN(layer.post_attention_norm, LoadVector(source.post_attention_norm, backend));
  RETURN_IF_ERROR(LoadProjection(source.q, backend, layer.q));
  RETURN_IF_ERROR(LoadProjection(source.k, backend, layer.k));
  RETURN_IF_ERROR(LoadProjection(source.v, backend, layer.v));
  RETURN_IF_ERROR(LoadProjection(source.o, backend, layer.o));
  RETURN_IF_ERROR(LoadProjection(source.gate, backend, layer.gate));
  RETURN_IF_ERROR(LoadProjection(source.up, backend, layer.up));
  RETURN_IF_ERROR(LoadProjection(source.down, backend, layer.down));
  return layer;
}

}  // namespace

absl::StatusOr<LlamaWeights> LlamaWeights::Load(const DecoderTensors& tensors, Backend& backend) {
  LlamaWeights weights;
  ASSIGN_OR_RETURN(weights.embedding, LoadMatrix(tensors.embedding, backend));
  if (!tensors.tied) {
    ASSIGN_OR_RETURN(weights.untied_head.weight, LoadMatrix(tensors.head, backend));
  }
  ASSIGN_OR_RETURN(weights.final_norm, LoadVector(tensors.final_norm, backend));
  weights.layers.reserve(tensors.layers.size());
  for (const LayerTensors& source : tensors.layers) {
    ASSIGN_OR_RETURN(LlamaLayer layer, LoadLayer(source, backend));
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

}  // namespace tessera::decode
