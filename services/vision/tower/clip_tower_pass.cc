#include "services/vision/tower/clip_tower_pass.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace tessera::vision {
namespace {

// Patches of one picture f32 [3, size, size] in reading order, each as (channel, y, x): out is
// [patches, patch_values].
void LayOutPatches(const TowerConfig& config, const TensorView& picture, float* out) {
  const int64_t size = config.image_size, side = config.patch_size;
  const auto* pixels = reinterpret_cast<const float*>(picture.data);
  for (int64_t row = 0; row < config.grid(); ++row) {
    for (int64_t col = 0; col < config.grid(); ++col) {
      for (int64_t channel = 0; channel < 3; ++channel) {
        for (int64_t y = 0; y < side; ++y) {
          const float* from = pixels + (channel * size + row * side + y) * size + col * side;
          out = std::copy(from, from + side, out);
        }
      }
    }
  }
}

}  // namespace

absl::Status TowerBuffers::Reserve(const TowerConfig& config, int64_t wanted_pictures,
                                   kernels::Backend& backend) {
  if (wanted_pictures <= pictures) return absl::OkStatus();
  *this = TowerBuffers();  // the old ones go first: both at once may not fit
  const int64_t tokens = wanted_pictures * config.sequence(), hidden = config.hidden_size;
  const int64_t row_count = wanted_pictures * config.rows();
  const ConnectorConfig& connector = config.connector;
  const std::pair<kernels::DeviceBuffer*, int64_t> wanted[] = {
      {&patches, wanted_pictures * config.patches() * config.patch_values()},
      {&x, tokens * hidden},
      {&h, tokens * hidden},
      {&q, tokens * hidden},
      {&k, tokens * hidden},
      {&v, tokens * hidden},
      {&mlp, tokens * config.intermediate_size},
      {&features, row_count * connector.input_width},
      {&between, row_count * connector.output_width},
      {&rows, row_count * connector.output_width},
  };
  for (const auto& [buffer, elements] : wanted) {
    ASSIGN_OR_RETURN(*buffer, backend.Allocate(elements));
  }
  pictures = wanted_pictures;
  return absl::OkStatus();
}

TowerPass::TowerPass(const TowerConfig& config, const TowerBuffers& buffers,
                     absl::Span<const TensorView> pictures)
    : pictures(static_cast<int64_t>(pictures.size())) {
  const int64_t count = this->pictures, sequence = config.sequence(), rows_each = config.rows();
  const int64_t first_row = config.keep_class_row ? 0 : 1;
  patches.resize(static_cast<size_t>(count * config.patches() * config.patch_values()));
  segments.push_back(0);
  for (int64_t i = 0; i < count; ++i) {
    LayOutPatches(config, pictures[static_cast<size_t>(i)],
                  patches.data() + i * config.patches() * config.patch_values());
    class_from.push_back(0);
    class_to.push_back(static_cast<int32_t>(i * sequence));
    for (int64_t t = 0; t < sequence; ++t) position.push_back(static_cast<int32_t>(t));
    for (int64_t r = 0; r < rows_each; ++r) {
      feature_from.push_back(static_cast<int32_t>(i * sequence + first_row + r));
      feature_to.push_back(static_cast<int32_t>(i * rows_each + r));
    }
    segments.push_back(static_cast<int32_t>((i + 1) * sequence));
  }
  const int64_t tokens = count * sequence, hidden = config.hidden_size;
  patch = View(buffers.patches, count * config.patches(), config.patch_values());
  x = View(buffers.x, tokens, hidden);
  h = View(buffers.h, tokens, hidden);
  q = View(buffers.q, tokens, hidden);
  k = View(buffers.k, tokens, hidden);
  v = View(buffers.v, tokens, hidden);
  mlp = View(buffers.mlp, tokens, config.intermediate_size);
  const ConnectorConfig& connector = config.connector;
  features = View(buffers.features, count * rows_each, connector.input_width);
  between = View(buffers.between, count * rows_each, connector.output_width);
  rows = View(buffers.rows, count * rows_each, connector.output_width);
}

}  // namespace tessera::vision
