#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/weights/safetensors.h"
#include "common/weights/weights.h"
#include "services/decode/model/decoder_config.h"

namespace tessera::decode {

// Which part of a model a tensor belongs to, told from its name.
enum class ModelPart { kDecoder, kVision, kConnector, kOther };
ModelPart PartOf(absl::string_view tensor_name);

using weights::NamedTensor;

// A weight matrix with its bias; `bias.view.data` is null where the config has none. Borrows the
// file.
struct Projection {
  NamedTensor weight;  // [out, in]
  NamedTensor bias;    // [out]
};

struct LayerTensors {
  NamedTensor input_norm, post_attention_norm;  // [hidden]
  Projection q, k, v, o, gate, up, down;
};

// Every tensor of a decoder, found by either generation of published names, shapes and element
// types checked; no element is read. Views borrow the Weights.
struct DecoderTensors {
  // INVALID_ARGUMENT (reason MODEL_WEIGHTS) names the tensor that is missing or has another shape
  // or an element type that is not supported, and what was expected.
  static absl::StatusOr<DecoderTensors> Find(const weights::Weights& weights,
                                             const DecoderConfig& config);

  NamedTensor embedding;  // [vocab, hidden]
  NamedTensor head;       // [vocab, hidden]; the embedding itself when tied
  bool tied = false;
  NamedTensor final_norm;  // [hidden]
  std::vector<LayerTensors> layers;

  std::vector<std::string> names;     // of all tensors used, sorted
  std::vector<std::string> unused;    // of the file, neither used nor the vision service's; sorted
  std::vector<std::string> warnings;  // oddities that were settled
};

}  // namespace tessera::decode
