#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tensor/tensor.h"

namespace tessera::weights {

struct NamedTensor {
  std::string name;
  TensorView view;  // borrows the file's bytes; may be unaligned
};

// Headers longer than this are refused, whatever the file's size.
inline constexpr size_t kMaxHeaderBytes = 100'000'000;

// Every tensor of a whole safetensors file, in the order of their data. Pure; trusts no byte of
// `file`, which must outlive the result. INVALID_ARGUMENT (reason WEIGHTS_INVALID) names the tensor
// or the byte offset: bad header length or JSON, a name twice, a number that is no integer literal,
// overflow, a range that overlaps, leaves a gap or does not end with the file, an unknown dtype.
absl::StatusOr<std::vector<NamedTensor>> ParseSafetensors(absl::string_view file);

// The header's __metadata__; empty without one. INVALID_ARGUMENT (WEIGHTS_INVALID) for a bad
// header.
absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(absl::string_view file);

// A tensor's name as it appears in messages: quoted, escaped, clipped.
std::string Quoted(absl::string_view name);

}  // namespace tessera::weights
