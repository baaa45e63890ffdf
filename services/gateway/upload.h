#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/rpc/request.h"
#include "services/gateway/ahead_prefill.h"
#include "services/gateway/gateway_options.h"
#include "services/gateway/image_resolver.h"
#include "tessera/v1/gateway.pb.h"

namespace tessera::gateway {

// Bytes that all uploads under way hold together. Any thread.
class UploadBudget {
 public:
  explicit UploadBudget(size_t bytes) : left_(static_cast<int64_t>(bytes)) {}
  // False, taking nothing, when less than `bytes` is left.
  bool Take(size_t bytes) {
    if (left_.fetch_sub(static_cast<int64_t>(bytes)) >= static_cast<int64_t>(bytes)) return true;
    GiveBack(bytes);
    return false;
  }
  void GiveBack(size_t bytes) { left_.fetch_add(static_cast<int64_t>(bytes)); }

 private:
  std::atomic<int64_t> left_;
};

// The bytes of one upload, as they come. One thread.
class Upload {
 public:
  Upload(const GatewayOptions& options, UploadBudget& budget, std::string tenant)
      : options_(options), budget_(budget), tenant_(std::move(tenant)) {}
  ~Upload() { budget_.GiveBack(taken_); }

  // INVALID_ARGUMENT IMAGE_TOO_LARGE once more than max_image_bytes have come, or for the first
  // message's session; RESOURCE_EXHAUSTED with RetryInfo when all uploads together hold too much.
  absl::Status Add(const v1::UploadImageRequest& message);
  // Starts encoding, and reading ahead where a session is given, and answers the handle.
  // INVALID_ARGUMENT when nothing came.
  absl::StatusOr<v1::UploadImageResponse> Finish(const rpc::RequestContext& request,
                                                 ImageResolver& resolver,
                                                 const std::shared_ptr<AheadPrefill>& ahead,
                                                 absl::Time now);

 private:
  const GatewayOptions& options_;
  UploadBudget& budget_;
  const std::string tenant_;
  bool begun_ = false;
  std::string session_;
  size_t taken_ = 0;  // of the budget
  std::string bytes_;
};

}  // namespace tessera::gateway
