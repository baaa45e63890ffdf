#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

// Pillow's anti-aliased resampling of 8-bit RGB (Image.resize without box and reducing_gap), equal
// to the byte: two passes, horizontal first, weights in 22-bit fixed point, bytes between the
// passes. Pure; any thread.
namespace tessera::vision {

// Numbers as Pillow and the published configurations have them.
enum class Filter { kLanczos = 1, kBilinear = 2, kBicubic = 3 };

// Part of an axis: [begin, begin + size).
struct Window {
  int begin = 0;
  int size = 0;
};

struct ResampleShape {
  int in_width = 0;
  int in_height = 0;
  int out_width = 0;  // the whole result, of which only the window is computed
  int out_height = 0;
  Window columns;  // window of the result
  Window rows;
};

// Row y of the input, u8 [in_width, 3]. Called at most once for each row, in rising order; the
// pointer is used until the next call.
using RowSource = absl::FunctionRef<const uint8_t*(int y)>;

// The window as u8 [rows.size, columns.size, 3]. Working memory: the window's width times the input
// rows it needs. REQUIRES: all sizes positive, the window inside the result.
std::vector<uint8_t> Resample(RowSource source, const ResampleShape& shape, Filter filter);

}  // namespace tessera::vision
