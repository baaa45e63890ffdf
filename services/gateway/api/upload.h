#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/base/clock.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/admission/byte_budget.h"
#include "services/gateway/api/api_options.h"
#include "services/gateway/pictures/ahead_prefill.h"
#include "services/gateway/pictures/image_resolver.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// The bytes of one upload, as they come, within a budget: what they have of it goes with the
// picture, wherever that is still held. One thread.
class Upload {
 public:
  Upload(const ApiOptions& options, ByteBudget& budget, std::string tenant)
      : options_(options), tenant_(std::move(tenant)), hold_(budget.For(tenant_)) {}

  // INVALID_ARGUMENT IMAGE_TOO_LARGE once more than max_image_bytes have come, or for the first
  // message's session; RESOURCE_EXHAUSTED with RetryInfo when the budget is used up.
  absl::Status Add(v1::UploadImageRequest message);
  // Starts encoding, and reading ahead where a session is given, and answers the handle.
  // INVALID_ARGUMENT when nothing came.
  absl::StatusOr<v1::UploadImageResponse> Finish(const rpc::RequestContext& request,
                                                 ImageResolver& resolver,
                                                 const std::shared_ptr<AheadPrefill>& ahead,
                                                 const base::Clock& clock);

 private:
  const ApiOptions& options_;
  const std::string tenant_;
  bool begun_ = false;
  std::string session_;
  ByteBudget::Hold hold_;  // of bytes_
  absl::Cord bytes_;       // as they came: a large message is not copied, small ones are gathered
};

}  // namespace tessera::gateway
