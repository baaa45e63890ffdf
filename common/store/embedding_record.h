#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/store/embedding_key.h"
#include "common/tensor/tensor.h"

namespace tessera::store {

// The rows of one picture and what is known about them. A value; shared as RecordPtr once made.
struct EmbeddingRecord {
  EmbeddingKey key;
  DType dtype = DType::kF16;  // kF16, kF32 or kI8
  int64_t rows = 0;
  int64_t width = 0;
  int64_t grid_height = 0;  // patches; 0 where there is no grid
  int64_t grid_width = 0;
  std::string model_revision;
  std::string preprocessing;              // canonical text
  absl::Time created;                     // kept to the microsecond
  std::map<std::string, double> quality;  // scores, such as "sharpness"
  // [rows, width], little-endian; of int8 rows, then their scales (int8_rows.h).
  std::vector<std::byte> data;

  // The rows as they are stored, without scales: ToFloatRows (rows.h) gives what a device takes.
  TensorView view() const { return {dtype, {rows, width}, data.data()}; }
  // Host memory that the record takes, about.
  size_t footprint() const {
    return sizeof(*this) + data.capacity() + model_revision.size() + preprocessing.size() +
           128 * quality.size();
  }
};

using RecordPtr = std::shared_ptr<const EmbeddingRecord>;

}  // namespace tessera::store
