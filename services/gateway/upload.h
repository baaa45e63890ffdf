#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/request.h"
#include "services/gateway/gateway_options.h"
#include "services/gateway/image_resolver.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// The bytes of one upload, as they come. One thread.
class Upload {
 public:
  Upload(const GatewayOptions& options, std::string tenant)
      : options_(options), tenant_(std::move(tenant)) {}

  // INVALID_ARGUMENT IMAGE_TOO_LARGE once more than max_image_bytes have come.
  absl::Status Add(const std::string& data);
  // Starts encoding and answers the handle. INVALID_ARGUMENT when nothing came.
  absl::StatusOr<v1::UploadImageResponse> Finish(const rpc::RequestContext& request,
                                                 ImageResolver& resolver, absl::Time now);

 private:
  const GatewayOptions& options_;
  const std::string tenant_;
  std::string bytes_;
};

}  // namespace tessera::gateway
