#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/tensor/tensor.h"
#include "common/weights/safetensors_writer.h"
#include "common/weights/weights.h"

namespace tessera::testing {

// Writes `dir`/model.safetensors anew with what `edit` makes of the bytes of each tensor. Aborts
// when it cannot. REQUIRES: one file, no shards.
inline void EditWeights(const std::string& dir,
                        const std::function<void(absl::string_view name, Tensor& tensor)>& edit) {
  std::string bytes;
  {
    const auto weights = weights::Weights::Open(dir).value();
    std::vector<std::pair<std::string, Tensor>> edited;
    for (const std::string& name : weights->names()) {
      const TensorView& view = *weights->Find(name);
      Tensor tensor(view.dtype, view.shape);
      std::copy_n(view.data, view.bytes(), tensor.bytes().begin());
      edit(name, tensor);
      edited.emplace_back(name, std::move(tensor));
    }
    std::vector<weights::NamedTensor> tensors;
    for (const auto& [name, tensor] : edited) tensors.push_back({name, tensor.view()});
    bytes = weights::SafetensorsBytes(tensors);
  }
  CHECK(weights::ReplaceFile(dir + "/model.safetensors", bytes).ok());
}

// The elements in the opposite order.
inline void Flip(Tensor& tensor) {
  const size_t size = SizeOf(tensor.dtype());
  const absl::Span<std::byte> bytes = tensor.bytes();
  for (size_t from = 0, to = bytes.size(); from + size < to; from += size) {
    to -= size;
    if (from < to) std::swap_ranges(&bytes[from], &bytes[from] + size, &bytes[to]);
  }
}

inline void Zero(Tensor& tensor) {
  std::fill(tensor.bytes().begin(), tensor.bytes().end(), std::byte{0});
}

}  // namespace tessera::testing
