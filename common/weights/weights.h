#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/digest.h"
#include "common/tensor/tensor.h"
#include "common/weights/mapped_file.h"

namespace tessera::weights {

// The tensors of a model, memory-mapped and validated. Owns the mappings; views borrow them.
// Immutable: any thread. Errors are INVALID_ARGUMENT or NOT_FOUND and name the path and the tensor
// or the byte offset.
class Weights {
 public:
  // `model_dir`: model.safetensors, else the shards that model.safetensors.index.json names.
  static absl::StatusOr<std::unique_ptr<Weights>> Open(const std::string& model_dir);
  // One .safetensors file.
  static absl::StatusOr<std::unique_ptr<Weights>> OpenFile(const std::string& path);
  // Shards lie beside the index. The index is believed: tensors of a shard that it does not name
  // are ignored, and its total_size is only a hint.
  static absl::StatusOr<std::unique_ptr<Weights>> OpenIndex(const std::string& index_path);

  // nullptr when absent. The view lives as long as this object; its data may be unaligned.
  const TensorView* Find(absl::string_view name) const;
  std::vector<std::string> names() const;  // sorted
  size_t total_bytes() const { return total_bytes_; }

  // SHA-256 over name, dtype, shape and bytes of each, in the order given. Reads all those bytes.
  // REQUIRES: every name is present.
  base::Sha256Digest Digest(absl::Span<const std::string> names) const;
  // SHA-256 over name, dtype and shape of every tensor and the first and last 4 KiB of its bytes:
  // tells models apart, and is no proof. Reads little.
  base::Sha256Digest Sketch() const;

  // FAILED_PRECONDITION when a file was written to since it was opened: ask after the last read of
  // the bytes, before trusting what was made of them. A file cut short while its bytes are read
  // ends the process with SIGBUS (see the README).
  absl::Status CheckUnchanged() const;

 private:
  Weights() = default;
  void Add(std::string name, TensorView view);

  std::vector<std::unique_ptr<MappedFile>> files_;
  absl::flat_hash_map<std::string, TensorView> tensors_;
  size_t total_bytes_ = 0;
};

}  // namespace tessera::weights
