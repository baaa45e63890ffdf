#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/digest.h"

namespace tessera::gateway {

// A handle is base64url(digest, expiry, HMAC-SHA-256 over tenant, digest, expiry): it holds the
// picture's name, not its bytes, and cannot be made without the key or used by another tenant.
struct ImageHandle {
  base::Sha256Digest digest{};
  absl::Time expiry;  // whole seconds
};

// The key that handles are signed with: what `file` holds (--image_handle_key_file), or a fresh one
// without a file, so that handles end with the process.
absl::StatusOr<std::string> HandleKey(const std::string& file);

std::string SignHandle(const ImageHandle& handle, absl::string_view tenant, absl::string_view key);

// NOT_FOUND: IMAGE_HANDLE_UNKNOWN when it is malformed, forged or another tenant's (they look the
// same), IMAGE_EXPIRED when it is over.
absl::StatusOr<ImageHandle> VerifyHandle(absl::string_view text, absl::string_view tenant,
                                         absl::string_view key, absl::Time now);

}  // namespace tessera::gateway
