#include "services/vision/connector/activation_name.h"

#include <utility>

namespace tessera::vision {
namespace {

using kernels::Activation;

// Names of transformers' ACT2FN. The three tanh forms are one function.
constexpr std::pair<absl::string_view, Activation> kNames[] = {
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"quick_gelu", Activation::kQuickGelu},
    {"relu", Activation::kRelu},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"linear", Activation::kNone},
};

}  // namespace

std::optional<Activation> ActivationNamed(absl::string_view name) {
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

absl::string_view ActivationNames() {
  return "gelu, gelu_python, gelu_new, gelu_fast, gelu_pytorch_tanh, quick_gelu, relu, silu, "
         "swish, linear";
}

}  // namespace tessera::vision
