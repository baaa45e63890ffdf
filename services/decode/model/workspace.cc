#include "services/decode/model/workspace.h"

#include <algorithm>

#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace tessera::decode {
namespace {

using kernels::DeviceBuffer;
using kernels::DeviceView;

// q, attended, k and v are dead when gate and up are alive.
int64_t SharedColumns(const DecoderConfig& config) {
  return std::max(2 * config.q_size() + 2 * config.kv_size(), 2 * config.intermediate_size);
}

int64_t TokenColumns(const DecoderConfig& config) {
  return 2 * config.hidden_size + config.head_dim + SharedColumns(config);
}

// Hands out dense views one behind the other.
class Carver {
 public:
  Carver(const DeviceBuffer& buffer, int64_t rows) : buffer_(buffer), rows_(rows) {}
  DeviceView Take(int64_t cols) {
    const DeviceView view = kernels::View(buffer_, rows_, cols, offset_);
    offset_ += static_cast<size_t>(rows_ * cols);
    return view;
  }

 private:
  const DeviceBuffer& buffer_;
  const int64_t rows_;
  size_t offset_ = 0;
};

absl::Status Grow(int64_t wanted, int64_t columns, kernels::Backend& backend, DeviceBuffer& buffer,
                  int64_t& capacity) {
  if (wanted <= capacity) return absl::OkStatus();
  wanted = std::max(wanted, capacity + capacity / 2);
  RETURN_IF_ERROR(backend.Synchronize());
  buffer = DeviceBuffer();
  capacity = 0;
  ASSIGN_OR_RETURN(buffer, backend.Allocate(wanted * columns));
  capacity = wanted;
  return absl::OkStatus();
}

}  // namespace

absl::Status Workspace::Reserve(int64_t tokens, int64_t logits, const DecoderConfig& config,
                                kernels::Backend& backend) {
  RETURN_IF_ERROR(Grow(tokens, TokenColumns(config), backend, per_token_, tokens_));
  return Grow(logits, config.hidden_size + config.vocab_size, backend, per_logit_, logits_);
}

Workspace::Views Workspace::For(int64_t tokens, int64_t logits, const DecoderConfig& config) const {
  CHECK(tokens <= tokens_ && logits <= logits_);
  Views views;
  Carver common(per_token_, tokens);
  views.hidden = common.Take(config.hidden_size);
  views.normed = common.Take(config.hidden_size);
  views.cos = common.Take(config.head_dim / 2);
  views.sin = common.Take(config.head_dim / 2);
  Carver attention = common;
  views.q = attention.Take(config.q_size());
  views.attended = attention.Take(config.q_size());
  views.k = attention.Take(config.kv_size());
  views.v = attention.Take(config.kv_size());
  Carver feed_forward = common;
  views.gate = feed_forward.Take(config.intermediate_size);
  views.up = feed_forward.Take(config.intermediate_size);
  Carver head(per_logit_, logits);
  views.last = head.Take(config.hidden_size);
  views.logits = head.Take(config.vocab_size);
  return views;
}

}  // namespace tessera::decode
