#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "services/vision/connector/tensor_source.h"

namespace tessera::vision {

struct ConnectorConfig {
  int64_t input_width = 0;   // columns of the tower's features
  int64_t output_width = 0;  // columns of the decoder's rows, and of the layer between
  kernels::Activation activation = kernels::Activation::kGelu;
  bool bias = true;
};

// Two linear layers with an activation between them: features to rows of the decoder. Owned and
// used by the thread that owns the backend, which outlives it.
class MlpConnector {
 public:
  static absl::StatusOr<std::unique_ptr<MlpConnector>> Create(const ConnectorConfig& config,
                                                              TensorSource& tensors,
                                                              kernels::Backend& backend);

  // features [m, input_width], between and out [m, output_width]. Enqueues only. REQUIRES: the
  // backend was synchronized since the last Run.
  void Run(kernels::DeviceView features, kernels::DeviceView between, kernels::DeviceView out);

  const ConnectorConfig& config() const { return config_; }
  // What the names of its tensors begin with in these files.
  const std::string& prefix() const { return prefix_; }

 private:
  struct Layer {
    kernels::DeviceMatrix weight;  // [out, in]
    kernels::DeviceVector bias;    // [out], or empty
  };
  MlpConnector(const ConnectorConfig& config, kernels::Backend& backend, std::string prefix)
      : config_(config), backend_(backend), prefix_(std::move(prefix)) {}
  absl::StatusOr<Layer> Load(TensorSource& tensors, absl::string_view name, int64_t in) const;

  const ConnectorConfig config_;
  kernels::Backend& backend_;
  const std::string prefix_;
  Layer first_, second_;
  kernels::MatMulOut first_out_, second_out_;  // of the Run under way
};

}  // namespace tessera::vision
