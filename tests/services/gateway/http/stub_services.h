#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/fleet/vision_client.h"
#include "tests/support/fake_clients.h"

namespace tessera::testing {

// A decode service whose answers a test gives by hand, from any thread.
class StubDecode final : public gateway::DecodeClient {
 public:
  class Stream final : public gateway::DecodeCall, public std::enable_shared_from_this<Stream> {
   public:
    Stream(StubDecode& decode, std::shared_ptr<const v1::DecodeStart> start,
           std::shared_ptr<gateway::DecodeEvents> events)
        : decode_(decode), start_(std::move(start)), events_(std::move(events)) {}

    const v1::DecodeStart& start() const { return *start_; }
    void Start() override { decode_.Begin(shared_from_this()); }
    // False: the client does not keep up, until Resume, or the answer has ended.
    bool Piece(const std::string& text, int logprobs = 0) {
      v1::TextPiece piece;
      piece.set_text(text);
      for (int i = 0; i < logprobs; ++i) {
        v1::TokenProbability& chosen = *piece.add_logprobs()->mutable_chosen();
        chosen.set_token(text);
        chosen.set_logprob(-0.5);
      }
      const std::lock_guard<std::recursive_mutex> lock(turn_);
      if (!events_ || !resumed()) return false;
      const bool goes_on = events_->OnPiece(std::move(piece));
      if (!goes_on) ++paused_;
      return goes_on;
    }
    void End(const absl::Status& status = absl::OkStatus(), int tokens = 0) {
      const std::lock_guard<std::recursive_mutex> lock(turn_);
      v1::DecodeEnd end;
      end.set_finish_reason(v1::FINISH_REASON_STOP);
      end.mutable_usage()->set_prompt_tokens(20);
      end.mutable_usage()->set_image_tokens(16);
      end.mutable_usage()->set_output_tokens(static_cast<uint32_t>(tokens));
      if (events_) std::exchange(events_, nullptr)->OnDone(status, end);
    }
    // Not paused. A Resume may come before the Piece that it is for has returned.
    bool resumed() {
      base::MutexLock lock(mutex_);
      return resumes_ >= paused_;
    }
    bool cancelled() {
      base::MutexLock lock(mutex_);
      return cancelled_;
    }

    void RowsReady(const std::vector<uint32_t>&) override {}
    void Resume() override {
      base::MutexLock lock(mutex_);
      ++resumes_;
    }
    void Cancel() override {
      {
        base::MutexLock lock(mutex_);
        cancelled_ = true;
      }
      End(absl::CancelledError("cancelled"));
    }

   private:
    StubDecode& decode_;
    const std::shared_ptr<const v1::DecodeStart> start_;
    std::recursive_mutex turn_;  // one event at a time; an end may come from within one
    std::shared_ptr<gateway::DecodeEvents> events_;
    std::atomic<int> paused_{0};
    base::Mutex mutex_;
    int resumes_ ABSL_GUARDED_BY(mutex_) = 0;
    bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  };

  std::shared_ptr<gateway::DecodeCall> Generate(
      std::shared_ptr<const v1::DecodeStart> start, const rpc::RequestContext&,
      const gateway::Placement&, std::shared_ptr<gateway::DecodeEvents> events) override {
    return std::make_shared<Stream>(*this, std::move(start), std::move(events));
  }
  std::shared_ptr<gateway::Call> Prefill(const v1::DecodeServicePrefillRequest&,
                                         const rpc::RequestContext&, const std::string&,
                                         PrefillDone done) override {
    return std::make_shared<InstantCall<gateway::Call>>(
        [done] { done(absl::UnavailableError("none")); });
  }

  // The call of this number; waits for it.
  std::shared_ptr<Stream> Await(size_t index) {
    base::MutexLock lock(mutex_);
    while (streams_.size() <= index) changed_.Wait(mutex_);
    return streams_[index];
  }
  size_t calls() {
    base::MutexLock lock(mutex_);
    return streams_.size();
  }
  void Forget() {
    base::MutexLock lock(mutex_);
    streams_.clear();
  }

  // Where set, before the first call: answers within Start.
  std::function<void(Stream&)> at_once;

 private:
  void Begin(std::shared_ptr<Stream> stream) {
    {
      base::MutexLock lock(mutex_);
      streams_.push_back(stream);
      changed_.SignalAll();
    }
    if (at_once) at_once(*stream);
  }

  base::Mutex mutex_;
  base::CondVar changed_;
  std::vector<std::shared_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
};

// A vision service that has all rows at once.
class StubVision final : public gateway::VisionClient {
 public:
  std::shared_ptr<gateway::EncodeCall> Encode(const gateway::Picture& picture, bool,
                                              const rpc::RequestContext&,
                                              gateway::EncodeEvents events) override {
    gateway::EncodedImage image;
    image.ready.mutable_ref()->set_key(
        std::string(reinterpret_cast<const char*>(picture.digest.data()), picture.digest.size()));
    image.ready.mutable_ref()->set_rows(16);
    image.ready.mutable_ref()->set_vision_fingerprint("f");
    return std::make_shared<InstantEncode>([image, events] { events.on_done(image); });
  }
};

}  // namespace tessera::testing
