#include "services/gateway/fleet/grpc_vision_client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <algorithm>
#include <utility>

#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"
#include "services/gateway/fleet/encode_request.h"
#include "tessera/v1/vision.pb.h"

namespace tessera::gateway {
namespace {

constexpr char kEncode[] = "/tessera.v1.VisionService/Encode";
constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kMostHeldBytes = 64 << 10;

// Requests are written by hand, so that the bytes of a picture are sent from where they lie.
using EncodeStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::EncodeResponse>;

// Offers the digest, with the first bytes where they are likely to be needed; sends what is not
// held, and the held bytes when the rows are wanted or vision cannot plan without them; waits for
// Ready, and leaves its side open until the rows are let go. A hold keeps the call for that, which
// comes from other threads. Owns itself until OnDone.
class GrpcEncodeCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, v1::EncodeResponse>,
                             public EncodeCall,
                             public std::enable_shared_from_this<GrpcEncodeCall> {
 public:
  GrpcEncodeCall(rpc::CallTracker& tracker, EncodeStub& stub, Picture picture, bool likely_new,
                 EncodeEvents events)
      : token_(tracker),
        stub_(stub),
        likely_new_(likely_new),
        picture_(std::move(picture)),
        events_(std::move(events)) {}

  void Forward(const rpc::RequestContext& request, absl::Time now) {
    rpc::ForwardRequest(request, now, context_);
  }

  void Start() override {
    self_ = shared_from_this();
    context_.set_initial_metadata_corked(true);  // goes with the offer, in one packet
    stub_.PrepareBidiStreamingCall(&context_, kEncode, {}, this);
    AddHold();
    {
      base::MutexLock lock(mutex_);
      WriteOffer();
    }
    StartRead(&read_);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void Proceed() override {
    base::MutexLock lock(mutex_);
    wanted_ = true;
    if (allowed_ == 0) return;  // not begun, or vision has not asked yet
    allowed_ = size_;
    WriteChunk();
  }

  std::shared_ptr<const Hearing> hearing() const override { return hearing_; }

  void OnReadDone(bool ok) override {
    if (ok) ++hearing_->words;
    if (!ok) {
      CloseWrites();
      RemoveHold();
      return;
    }
    if (read_.has_need_bytes()) AllowMore();
    if (read_.has_plan() && events_.on_plan) events_.on_plan(read_.plan().ref());
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
    grpc::ByteBuffer sent;  // goes without the lock
    base::MutexLock lock(mutex_);
    writing_ = false;
    sent.Swap(&write_);
    if (ok) WriteChunk();
    if (closing_ && !writing_) SayWritesDone();
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
  void WriteOffer() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::EncodeOffer offer;
    offer.set_tenant(picture_.tenant);
    offer.set_digest(picture_.digest.data(), picture_.digest.size());
    // Where nobody knows any more how large it was, anything but nothing: only the digest counts.
    size_ = picture_.bytes ? picture_.bytes->size() : picture_.size;
    offer.set_size_bytes(std::max<uint64_t>(size_, 1));
    if (picture_.bytes && likely_new_) {
      held_ = wanted_ ? 0 : std::min<size_t>(kMostHeldBytes, (size_ + 1) / 2);
      allowed_ = size_ - held_;
      if (allowed_ == 0) held_ = 0;  // of one byte: it is only asked for
      offer.set_held_bytes(held_);
    }
    sent_ = std::min(kChunkBytes, allowed_);
    Write(EncodeOfferRequest(offer, picture_.bytes, sent_));
  }

  // NeedBytes: vision has none, or lacks only those that are held.
  void AllowMore() {
    if (SendMore()) return;
    expired_ = true;
    context_.TryCancel();
  }
  // False: there is nothing to send.
  bool SendMore() {
    base::MutexLock lock(mutex_);
    if (closing_) return true;
    if (!picture_.bytes) return false;
    const bool lacks_held = wanted_ || allowed_ >= size_ - held_;
    allowed_ = lacks_held ? size_ : size_ - held_;
    WriteChunk();
    return true;
  }

  // The next bytes that may be sent, once those before are.
  void WriteChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || closing_ || !picture_.bytes || sent_ >= allowed_) return;
    const size_t count = std::min(kChunkBytes, allowed_ - sent_);
    Write(EncodeChunkRequest(picture_.bytes, sent_, count));
    sent_ += count;
  }

  void Write(grpc::ByteBuffer request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    write_.Swap(&request);
    writing_ = true;
    StartWrite(&write_);
  }

  // Vision needs nothing more: the rows were let go, or the call is over.
  void CloseWrites() {
    base::MutexLock lock(mutex_);
    closing_ = true;
    if (!writing_) SayWritesDone();
  }

  void SayWritesDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(writes_done_, true)) return;
    StartWritesDone();
  }

  // The record is there.
  void LetGoOfBytes() {
    std::shared_ptr<const absl::Cord> bytes;  // goes without the lock
    base::MutexLock lock(mutex_);
    bytes = std::move(picture_.bytes);
  }

  const rpc::CallTracker::Token token_;  // first: goes last
  EncodeStub& stub_;
  const bool likely_new_;
  Picture picture_;  // its bytes until the record is there; they change with mutex_
  EncodeEvents events_;
  grpc::ClientContext context_;
  v1::EncodeResponse read_;
  bool expired_ = false;
  const std::shared_ptr<Hearing> hearing_ = std::make_shared<Hearing>();
  std::shared_ptr<GrpcEncodeCall> self_;

  base::Mutex mutex_;
  grpc::ByteBuffer write_ ABSL_GUARDED_BY(mutex_);    // while it is written
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;           // of the picture
  size_t held_ ABSL_GUARDED_BY(mutex_) = 0;           // the last of size_
  size_t allowed_ ABSL_GUARDED_BY(mutex_) = 0;        // as many may be sent now
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;           // of these
  bool wanted_ ABSL_GUARDED_BY(mutex_) = false;       // Proceed was called
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;      // a write is under way
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;      // nothing more to send
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;  // said so to the service
};

class GrpcVisionClient final : public VisionClient {
 public:
  GrpcVisionClient(std::shared_ptr<grpc::Channel> channel, const base::Clock& clock)
      : stub_(std::move(channel)), clock_(clock) {}

  std::shared_ptr<EncodeCall> Encode(const Picture& picture, bool likely_new,
                                     const rpc::RequestContext& request,
                                     EncodeEvents events) override {
    auto call =
        std::make_shared<GrpcEncodeCall>(tracker_, stub_, picture, likely_new, std::move(events));
    call->Forward(request, clock_.Now());
    return call;
  }

 private:
  EncodeStub stub_;  // holds the channel
  const base::Clock& clock_;
  rpc::CallTracker tracker_;  // last: waits for the calls first
};

}  // namespace

std::unique_ptr<VisionClient> MakeGrpcVisionClient(std::shared_ptr<grpc::Channel> channel,
                                                   const base::Clock& clock) {
  return std::make_unique<GrpcVisionClient>(std::move(channel), clock);
}

}  // namespace tessera::gateway
