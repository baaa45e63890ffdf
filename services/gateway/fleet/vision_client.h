#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "common/base/digest.h"
#include "common/rpc/trace/request_context.h"
#include "tessera/v1/vision.pb.h"

namespace tessera::gateway {

// What was heard of a call of a replica, for who judges whether that lives. Written by the call.
struct Hearing {
  std::atomic<uint64_t> words{0};   // messages that came
  std::atomic<bool> told{false};    // some of them were told to the client: no other can go on
  std::atomic<bool> paused{false};  // nothing is read from it, for its reader's sake
};

// A call of a service. It is made, then begun by Start, so that who hears of its events has the
// call already. One that is never begun says nothing and may be dropped; one that was begun goes on
// when it is dropped.
class Call {
 public:
  virtual ~Call() = default;
  // Once. No event comes before; some, even the last, may before it returns.
  virtual void Start() = 0;
  // Any number of times, on any thread. The last event still comes, with CANCELLED or with what was
  // first. Before Start: that ends the call at once.
  virtual void Cancel() = 0;
  // Null where nothing is heard before the end.
  virtual std::shared_ptr<const Hearing> hearing() const { return nullptr; }
};

// The encoding of one picture.
class EncodeCall : public Call {
 public:
  // The rows are wanted: vision gets the last bytes of the picture and begins; until then it only
  // plans. Any number of times, on any thread; before Start: nothing is held back.
  virtual void Proceed() = 0;
};

// A picture as the gateway knows it.
struct Picture {
  std::string tenant;
  base::Sha256Digest digest{};
  // In as many pieces as they came in. Null: only a handle is left of it.
  std::shared_ptr<const absl::Cord> bytes;
  uint64_t size = 0;  // bytes, also when they are gone (0: unknown)
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

// What the encoding of a picture says. One call at a time, on any thread.
struct EncodeEvents {
  // The picture's header is good: so many rows it will be. A ref without quality. At most once; not
  // of a record that exists. May be null.
  std::function<void(const v1::ImageRef& planned)> on_plan;
  // Exactly once, the last.
  std::function<void(absl::StatusOr<EncodedImage> image)> on_done;
};

// The vision service. Any thread.
class VisionClient {
 public:
  virtual ~VisionClient() = default;
  // Runs until the record exists and nobody keeps it any more. NOT_FOUND (IMAGE_EXPIRED) when
  // vision needs bytes that `picture` has not. `likely_new`: the first bytes go with the offer.
  // Never null.
  virtual std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool likely_new,
                                             const rpc::RequestContext& request,
                                             EncodeEvents events) = 0;
};

}  // namespace tessera::gateway
