#include "services/gateway/fleet/grpc_vision_client.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::gateway {
namespace {

constexpr size_t kChunkBytes = 1 << 20;

// Offers the digest, sends the bytes when they are asked for, waits for Ready, and leaves its side
// open until the rows are let go. A hold keeps the call for that, which comes from other threads.
// Owns itself until OnDone.
class GrpcEncodeCall final : public grpc::ClientBidiReactor<v1::EncodeRequest, v1::EncodeResponse>,
                             public EncodeCall,
                             public std::enable_shared_from_this<GrpcEncodeCall> {
 public:
  GrpcEncodeCall(rpc::CallTracker& tracker, v1::VisionService::Stub& stub, Picture picture,
                 EncodeEvents events)
      : token_(tracker), stub_(stub), picture_(std::move(picture)), events_(std::move(events)) {}

  void Forward(const rpc::RequestContext& request, absl::Time now) {
    rpc::ForwardRequest(request, now, context_);
  }

  void Start() override {
    self_ = shared_from_this();
    v1::EncodeOffer& offer = *write_.mutable_offer();
    offer.set_tenant(picture_.tenant);
    offer.set_digest(picture_.digest.data(), picture_.digest.size());
    // Where nobody knows any more how large it was, anything but nothing: only the digest counts.
    const uint64_t size = picture_.bytes ? picture_.bytes->size() : picture_.size;
    offer.set_size_bytes(std::max<uint64_t>(size, 1));
    writing_ = true;
    context_.set_initial_metadata_corked(true);  // goes with the offer, in one packet
    stub_.async()->Encode(&context_, this);
    AddHold();
    StartWrite(&write_);
    StartRead(&read_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }
  void Proceed() override {}

  void OnReadDone(bool ok) override {
    if (!ok) {
      CloseWrites();
      RemoveHold();
      return;
    }
    if (read_.has_need_bytes()) SendBytes();
    if (read_.has_ready() && events_.on_done) {
      LetGoOfBytes();
      EncodedImage image;
      image.ready = std::move(*read_.mutable_ready());
      image.rows = std::shared_ptr<const void>(
          static_cast<const void*>(this),
          [self = shared_from_this()](const void*) { self->CloseWrites(); });
      std::exchange(events_, {}).on_done(std::move(image));
    }
    StartRead(&read_);
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (ok && sending_) WriteChunk();
    if (last_ && !writing_) SayWritesDone();
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GrpcEncodeCall> self = std::move(self_);
    if (!events_.on_done) return;
    absl::Status result = absl::InternalError("vision answered no record");
    if (expired_) {
      result = base::WithResource(
          base::Error(absl::StatusCode::kNotFound, "IMAGE_EXPIRED",
                      "nothing is left behind this image handle: upload the picture again"),
          "image_handle", base::ToHex(picture_.digest));
    } else if (!status.ok()) {
      result = rpc::FromGrpc(status);
    }
    std::exchange(events_, {}).on_done(std::move(result));
  }

 private:
  // Vision needs nothing more: the rows were let go, or the call is over.
  void CloseWrites() {
    base::MutexLock lock(mutex_);
    last_ = true;
    sending_ = false;
    if (!writing_) SayWritesDone();
  }

  void SayWritesDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writes_done_) return;
    writes_done_ = true;
    StartWritesDone();
  }

  void SendBytes() {
    if (!picture_.bytes) {
      expired_ = true;
      context_.TryCancel();
      return;
    }
    base::MutexLock lock(mutex_);
    sending_ = true;
    if (!writing_) WriteChunk();
  }

  // The record is there.
  void LetGoOfBytes() {
    std::shared_ptr<const std::string> bytes;  // goes without the lock
    base::MutexLock lock(mutex_);
    sending_ = false;
    bytes = std::move(picture_.bytes);
  }

  void WriteChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (sent_ >= picture_.bytes->size()) {
      sending_ = false;
      return;
    }
    const size_t count = std::min(kChunkBytes, picture_.bytes->size() - sent_);
    write_.set_chunk(picture_.bytes->data() + sent_, count);
    sent_ += count;
    writing_ = true;
    StartWrite(&write_);
  }

  const rpc::CallTracker::Token token_;  // first: goes last
  v1::VisionService::Stub& stub_;
  Picture picture_;  // its bytes until the record is there; they change with mutex_
  EncodeEvents events_;
  grpc::ClientContext context_;
  v1::EncodeResponse read_;
  bool expired_ = false;
  std::shared_ptr<GrpcEncodeCall> self_;

  base::Mutex mutex_;
  v1::EncodeRequest write_;
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false;         // nothing more to send
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;  // said so to the service
  bool writing_ = false;  // set before the call starts, then guarded by mutex_
};

class GrpcVisionClient final : public VisionClient {
 public:
  GrpcVisionClient(std::shared_ptr<grpc::Channel> channel, const base::Clock& clock)
      : stub_(v1::VisionService::NewStub(channel)), clock_(clock) {}

  std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool,
                                     const rpc::RequestContext& request,
                                     EncodeEvents events) override {
    auto call = std::make_shared<GrpcEncodeCall>(tracker_, *stub_, picture, std::move(events));
    call->Forward(request, clock_.Now());
    return call;
  }

 private:
  const std::unique_ptr<v1::VisionService::Stub> stub_;  // holds the channel
  const base::Clock& clock_;
  rpc::CallTracker tracker_;  // last: waits for the calls first
};

}  // namespace

std::unique_ptr<VisionClient> MakeGrpcVisionClient(std::shared_ptr<grpc::Channel> channel,
                                                   const base::Clock& clock) {
  return std::make_unique<GrpcVisionClient>(std::move(channel), clock);
}

}  // namespace tessera::gateway
