#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/rpc/trace/request_context.h"
#include "tessera/v1/vision.pb.h"

namespace tessera::gateway {

// A call under way; dropping it does not end it.
class Call {
 public:
  virtual ~Call() = default;
  // The callback still comes, with CANCELLED or with what was first.
  virtual void Cancel() = 0;
};

// A picture as the gateway knows it.
struct Picture {
  std::string tenant;
  base::Sha256Digest digest{};
  std::shared_ptr<const std::string> bytes;  // null: only a handle is left of it
  uint64_t size = 0;                         // bytes, also when they are gone (0: unknown)
};

// A picture whose record exists.
struct EncodedImage {
  v1::EncodeReady ready;
  // While somebody keeps this, the record stays readable. May be null. Let go of it soon: vision
  // bounds what is kept.
  std::shared_ptr<const void> rows;
  // Who made it, and why that one.
  std::string replica;
  std::string replica_reason;
};

// The vision service. Any thread.
class VisionClient {
 public:
  virtual ~VisionClient() = default;
  using EncodeDone = std::function<void(absl::StatusOr<EncodedImage>)>;
  // Runs until the record exists and nobody keeps it any more. `done` is called exactly once, on
  // any thread, possibly before Encode returns. NOT_FOUND (IMAGE_EXPIRED) when vision needs bytes
  // that picture has not.
  virtual std::shared_ptr<Call> Encode(const Picture& picture, const rpc::RequestContext& request,
                                       EncodeDone done) = 0;
};

}  // namespace tessera::gateway
