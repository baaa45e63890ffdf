#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Sizes as people write them. Pure.
namespace tessera::base {

// "123", "64KiB", "1.5GiB", "20MB", up to 1e18 bytes; INVALID_ARGUMENT otherwise.
absl::StatusOr<size_t> ParseBytes(absl::string_view text);

// "64.0 MiB", "5 B".
std::string BytesText(size_t bytes);

// Memory that somebody may use: so many bytes, or a share of what is free once that is known.
struct MemoryBudget {
  size_t bytes = 0;  // counts where share is 0
  double share = 0;  // 0: none; else above 0 and at most 1

  // In bytes. `free_bytes`: what the device has left; looked at only where there is a share.
  size_t BytesOf(size_t free_bytes) const;
  // "64.0 MiB", "40%".
  std::string Text() const;
};

// A size as ParseBytes takes it, or a share such as "40%" or "12.5%" (above 0, at most 100);
// INVALID_ARGUMENT otherwise.
absl::StatusOr<MemoryBudget> ParseMemoryBudget(absl::string_view text);

}  // namespace tessera::base
