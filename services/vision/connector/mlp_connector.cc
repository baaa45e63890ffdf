#include "services/vision/connector/mlp_connector.h"

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

// As published, as newer writers name it.
constexpr absl::string_view kPrefixes[] = {"multi_modal_projector.",
                                           "model.multi_modal_projector."};

}  // namespace

absl::StatusOr<std::unique_ptr<MlpConnector>> MlpConnector::Create(const ConnectorConfig& config,
                                                                   TensorSource& tensors,
                                                                   kernels::Backend& backend) {
  ASSIGN_OR_RETURN(std::string prefix, tensors.FindPrefix(kPrefixes, "linear_1.weight"));
  auto connector =
      std::unique_ptr<MlpConnector>(new MlpConnector(config, backend, std::move(prefix)));
  ASSIGN_OR_RETURN(connector->first_, connector->Load(tensors, "linear_1", config.input_width));
  ASSIGN_OR_RETURN(connector->second_, connector->Load(tensors, "linear_2", config.output_width));
  return connector;
}

absl::StatusOr<MlpConnector::Layer> MlpConnector::Load(TensorSource& tensors,
                                                       absl::string_view name, int64_t in) const {
  Layer layer;
  const std::string stem = absl::StrCat(prefix_, name);
  ASSIGN_OR_RETURN(const TensorView weight,
                   tensors.Get(absl::StrCat(stem, ".weight"), {config_.output_width, in}));
  ASSIGN_OR_RETURN(layer.weight, backend_.LoadMatrix(weight));
  if (config_.bias) {
    ASSIGN_OR_RETURN(const TensorView bias,
                     tensors.Get(absl::StrCat(stem, ".bias"), {config_.output_width}));
    ASSIGN_OR_RETURN(layer.bias, backend_.LoadVector(bias));
  }
  return layer;
}

void MlpConnector::Run(kernels::DeviceView features, kernels::DeviceView between,
                       kernels::DeviceView out) {
  const auto bias = [](const Layer& layer) { return layer.bias.empty() ? nullptr : &layer.bias; };
  first_out_ = {&first_.weight, bias(first_), between};
  second_out_ = {&second_.weight, bias(second_), out};
  backend_.MatMul({features, absl::MakeConstSpan(&first_out_, 1), config_.activation, false});
  backend_.MatMul(
      {between, absl::MakeConstSpan(&second_out_, 1), kernels::Activation::kNone, false});
}

}  // namespace tessera::vision
