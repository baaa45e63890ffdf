#include "services/gateway/fleet/grpc_decode_peer.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/call_tracker.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"
#include "tessera/v1/decode.grpc.pb.h"

namespace tessera::gateway {
namespace {

// One Generate stream. A hold keeps it open for RowsReady, which comes from other threads, until
// the service has said its last word: an answer that gave its blocks up may ask for rows when half
// of it is told. Owns itself until OnDone.
class GenerateCall final : public grpc::ClientBidiReactor<v1::DecodeServiceGenerateRequest,
                                                          v1::DecodeServiceGenerateResponse>,
                           public DecodeCall,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(rpc::CallTracker& tracker, v1::DecodeService::Stub& stub,
               std::shared_ptr<const v1::DecodeStart> start, std::shared_ptr<AttemptEvents> events,
               DecodePeer::AttemptDone done)
      : token_(tracker),
        stub_(stub),
        start_(std::move(start)),
        events_(std::move(events)),
        done_(std::move(done)) {}

  void Forward(const rpc::RequestContext& request, absl::Time now) {
    rpc::ForwardRequest(request, now, context_);
  }

  void Start() override {
    self_ = shared_from_this();
    context_.set_initial_metadata_corked(true);  // goes with the start, in one packet
    stub_.async()->Generate(&context_, this);
    AddHold();
    {
      base::MutexLock lock(mutex_);
      // Lent, not copied; OnWriteDone takes it back.
      outgoing_.emplace_back().unsafe_arena_set_allocated_start(
          const_cast<v1::DecodeStart*>(start_.get()));
      WriteNext();
    }
    StartRead(&read_);
    StartCall();
  }

  void Cancel() override {
    context_.TryCancel();
    bool read = false;
    {
      base::MutexLock lock(mutex_);
      cancelled_ = true;
      read = std::exchange(paused_, false);
    }
    if (read) StartRead(&read_);  // which fails, and so ends the call
  }

  void RowsReady(const std::vector<uint32_t>& images) override {
    base::MutexLock lock(mutex_);
    if (closed_ || last_) return;
    v1::RowsReady ready;
    for (const uint32_t image : images) {
      const auto asked = std::find(needed_.begin(), needed_.end(), image);
      if (asked == needed_.end()) continue;
      needed_.erase(asked);
      ready.add_images(image);
    }
    if (ready.images_size() == 0) return;
    *outgoing_.emplace_back().mutable_rows_ready() = std::move(ready);
    WriteNext();
  }

  void Resume() override {
    {
      base::MutexLock lock(mutex_);
      if (!paused_) {
        resumed_ = true;  // before the piece's taker has said that it is full
        return;
      }
      paused_ = false;
    }
    hearing_->paused = false;
    StartRead(&read_);  // the hold lasts until a read fails
  }

  void OnWriteDone(bool ok) override {
    base::MutexLock lock(mutex_);
    writing_ = false;
    if (outgoing_.front().has_start()) {
      static_cast<void>(outgoing_.front().unsafe_arena_release_start());
    }
    outgoing_.pop_front();
    if (ok && !closed_) WriteNext();
  }

  // Decode has all it can ask for.
  void CloseWrites() {
    base::MutexLock lock(mutex_);
    last_ = true;
    WriteNext();
  }

  std::shared_ptr<const Hearing> hearing() const override { return hearing_; }

  void OnReadDone(bool ok) override {
    if (ok) ++hearing_->words;
    if (!ok) {
      CloseWrites();
      {
        base::MutexLock lock(mutex_);
        closed_ = true;
      }
      RemoveHold();
      return;
    }
    switch (read_.kind_case()) {
      case v1::DecodeServiceGenerateResponse::kAccepted:
        events_->OnAccepted(read_.accepted());
        break;
      case v1::DecodeServiceGenerateResponse::kNeedRows:
        Note(read_.need_rows());
        events_->OnNeedRows(read_.need_rows());
        break;
      case v1::DecodeServiceGenerateResponse::kPiece:
        end_.has_pieces = true;
        hearing_->told = true;
        if (!events_->OnPiece(std::move(*read_.mutable_piece())) && Pauses()) return;
        break;
      case v1::DecodeServiceGenerateResponse::kEnd:
        CloseWrites();
        end_.end = std::move(*read_.mutable_end());
        has_end_ = true;
        break;
      default:
        break;
    }
    StartRead(&read_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GenerateCall> self = std::move(self_);
    end_.status = rpc::FromGrpc(status);
    if (end_.status.ok() && !has_end_) {
      end_.status = absl::InternalError("decode ended without an end");
    }
    const DecodePeer::AttemptDone done = std::move(done_);
    done(end_);
    events_ = nullptr;
  }

 private:
  void Note(const v1::NeedRows& need) {
    base::MutexLock lock(mutex_);
    needed_.insert(needed_.end(), need.images().begin(), need.images().end());
  }

  // Whether the next read is Resume's.
  bool Pauses() {
    base::MutexLock lock(mutex_);
    paused_ = !std::exchange(resumed_, false) && !cancelled_;
    hearing_->paused = paused_;
    return paused_;
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || writes_done_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (last_) {
      writes_done_ = true;
      StartWritesDone();
    }
  }

  const rpc::CallTracker::Token token_;  // first: goes last
  v1::DecodeService::Stub& stub_;
  const std::shared_ptr<const v1::DecodeStart> start_;
  std::shared_ptr<AttemptEvents> events_;
  DecodePeer::AttemptDone done_;
  grpc::ClientContext context_;
  v1::DecodeServiceGenerateResponse read_;
  AttemptEnd end_;
  bool has_end_ = false;
  const std::shared_ptr<Hearing> hearing_ = std::make_shared<Hearing>();
  std::shared_ptr<GenerateCall> self_;

  base::Mutex mutex_;
  std::deque<v1::DecodeServiceGenerateRequest> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> needed_ ABSL_GUARDED_BY(mutex_);  // pictures of NeedRows, unanswered
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false;         // nothing will be added to outgoing_
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;  // said so to the service
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;  // no read is under way
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool resumed_ ABSL_GUARDED_BY(mutex_) = false;  // Resume came first
};

// One Prefill call. Owns itself until OnDone.
class PrefillCall final : public grpc::ClientUnaryReactor,
                          public Call,
                          public std::enable_shared_from_this<PrefillCall> {
 public:
  PrefillCall(rpc::CallTracker& tracker, v1::DecodeService::Stub& stub,
              v1::DecodeServicePrefillRequest start, DecodePeer::PrefillDone done)
      : token_(tracker), stub_(stub), start_(std::move(start)), done_(std::move(done)) {}

  void Forward(const rpc::RequestContext& request, absl::Time now) {
    rpc::ForwardRequest(request, now, context_);
  }

  void Start() override {
    self_ = shared_from_this();
    stub_.async()->Prefill(&context_, &start_, &response_, this);
    StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<PrefillCall> self = std::move(self_);
    const DecodePeer::PrefillDone done = std::move(done_);
    if (status.ok()) {
      done(std::move(response_));
    } else {
      done(rpc::FromGrpc(status));
    }
  }

 private:
  const rpc::CallTracker::Token token_;  // first: goes last
  v1::DecodeService::Stub& stub_;
  const v1::DecodeServicePrefillRequest start_;
  DecodePeer::PrefillDone done_;
  grpc::ClientContext context_;
  v1::DecodeServicePrefillResponse response_;
  std::shared_ptr<PrefillCall> self_;
};

class GrpcDecodePeer final : public DecodePeer {
 public:
  GrpcDecodePeer(std::shared_ptr<grpc::Channel> channel, const base::Clock& clock)
      : stub_(v1::DecodeService::NewStub(channel)), clock_(clock) {}

  std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                       const rpc::RequestContext& request,
                                       std::shared_ptr<AttemptEvents> events,
                                       AttemptDone done) override {
    auto call = std::make_shared<GenerateCall>(tracker_, *stub_, std::move(start),
                                               std::move(events), std::move(done));
    call->Forward(request, clock_.Now());
    return call;
  }

  std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                const rpc::RequestContext& request, PrefillDone done) override {
    auto call = std::make_shared<PrefillCall>(tracker_, *stub_, start, std::move(done));
    call->Forward(request, clock_.Now());
    return call;
  }

 private:
  const std::unique_ptr<v1::DecodeService::Stub> stub_;  // holds the channel
  const base::Clock& clock_;
  rpc::CallTracker tracker_;  // last: waits for the calls first
};

}  // namespace

std::unique_ptr<DecodePeer> MakeGrpcDecodePeer(std::shared_ptr<grpc::Channel> channel,
                                               const base::Clock& clock) {
  return std::make_unique<GrpcDecodePeer>(std::move(channel), clock);
}

}  // namespace tessera::gateway
