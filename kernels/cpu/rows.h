#pragma once

#include "kernels/backend.h"

namespace tessera::kernels::cpu {

void Upload(const TensorView& host, const DeviceView& out);
void Download(const DeviceView& x, absl::Span<float> host);
void EmbedTokens(const DeviceMatrix& table, absl::Span<const int32_t> ids, const DeviceView& out);
void CopyRows(const DeviceView& x, absl::Span<const int32_t> from, const DeviceView& out,
              absl::Span<const int32_t> to);
void AddRows(const DeviceView& x, const DeviceView& table, absl::Span<const int32_t> index);

}  // namespace tessera::kernels::cpu
