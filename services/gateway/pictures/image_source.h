#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "services/gateway/fleet/vision_client.h"
#include "services/gateway/pictures/picture_options.h"
#include "tessera/v1/types.pb.h"

namespace tessera::gateway {

// The picture that `image` names: its bytes and digest, or the digest behind a handle. `field` is
// its path in the request, for errors. INVALID_ARGUMENT: no source, empty, over the limit, a URL
// that is no "data:" URL (nothing is fetched and no file is opened), bad base64. NOT_FOUND: handle.
absl::StatusOr<Picture> ResolveSource(v1::Image image, absl::string_view field,
                                      absl::string_view tenant, const PictureOptions& options,
                                      absl::Time now);

// Bytes of a "data:" URL (RFC 2397) with base64; white space in the payload is skipped.
absl::StatusOr<std::string> ParseDataUrl(absl::string_view url, size_t max_bytes);

}  // namespace tessera::gateway
