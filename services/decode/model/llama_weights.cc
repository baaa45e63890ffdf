#include "services/decode/model/llama_weights.h"

#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

using kernels::Backend;

absl::Status LoadProjection(const Projection& source, Backend& backend, DeviceProjection& out) {
  ASSIGN_OR_RETURN(out.weight, backend.LoadMatrix(source.weight));
  if (source.bias.data != nullptr) {
    ASSIGN_OR_RETURN(out.bias, backend.LoadVector(source.bias));
  }
  return absl::OkStatus();
}

absl::StatusOr<LlamaLayer> LoadLayer(const LayerTensors& source, Backend& backend) {
  LlamaLayer layer;
  ASSIGN_OR_RETURN(layer.input_norm, backend.LoadVector(source.input_norm));
  ASSIGN_OR_RETURN(layer.post_attention_norm, backend.LoadVector(source.post_attention_norm));
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
  ASSIGN_OR_RETURN(weights.embedding, backend.LoadMatrix(tensors.embedding));
  if (!tensors.tied) {
    ASSIGN_OR_RETURN(weights.untied_head.weight, backend.LoadMatrix(tensors.head));
  }
  ASSIGN_OR_RETURN(weights.final_norm, backend.LoadVector(tensors.final_norm));
  weights.layers.reserve(tensors.layers.size());
  for (const LayerTensors& source : tensors.layers) {
    ASSIGN_OR_RETURN(LlamaLayer layer, LoadLayer(source, backend));
    weights.layers.push_back(std::move(layer));
  }
  return weights;
}

}  // namespace tessera::decode
