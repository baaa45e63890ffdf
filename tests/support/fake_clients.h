#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::testing {

// A call that is over when it has begun.
template <typename CallType>
class InstantCall : public CallType {
 public:
  explicit InstantCall(std::function<void()> on_start) : on_start_(std::move(on_start)) {}
  void Start() override { on_start_(); }
  void Cancel() override {}

 private:
  const std::function<void()> on_start_;
};

// The encoding of a picture that is over when it has begun.
class InstantEncode final : public InstantCall<gateway::EncodeCall> {
 public:
  using InstantCall::InstantCall;
  void Proceed() override {}
};

// A vision service whose answers a test gives by hand, of calls that were begun. One thread, or
// calls in turn.
class FakeVisionClient final : public gateway::VisionClient {
 public:
  struct Pending : gateway::EncodeCall {
    gateway::Picture picture;
    bool likely_new = false;
    rpc::RequestContext request;
    gateway::EncodeEvents events;
    bool started = false, proceeded = false, cancelled = false;
    std::weak_ptr<const void> rows;  // kept, once they are ready
    void Start() override {
      CHECK(!std::exchange(started, true));
      if (cancelled) Cancel();
    }
    void Proceed() override { proceeded = true; }
    void Cancel() override {
      cancelled = true;
      if (started && events.on_done) End(absl::CancelledError("cancelled"));
    }
    void Plan(uint32_t image_rows = 16) {
      CHECK(started);
      if (!events.on_plan) return;
      v1::ImageRef ref;
      ref.set_rows(image_rows);
      events.on_plan(ref);
    }
    void Ready(v1::CacheTier cache, v1::QualityVerdict verdict = v1::QUALITY_VERDICT_PASS,
               double encode_seconds = 0) {
      gateway::EncodedImage image;
      image.rows = std::make_shared<int>();
      rows = image.rows;
      v1::EncodeReady& ready = image.ready;
      ready.mutable_ref()->set_key(
          std::string(reinterpret_cast<const char*>(picture.digest.data()), picture.digest.size()));
      ready.mutable_ref()->set_rows(16);
      ready.mutable_ref()->set_vision_fingerprint("f");
      ready.mutable_ref()->mutable_quality()->set_verdict(verdict);
      ready.set_cache(cache);
      ready.mutable_stages()->set_encode_seconds(encode_seconds);
      End(std::move(image));
    }
    void Fail(absl::Status status) { End(std::move(status)); }

   private:
    void End(absl::StatusOr<gateway::EncodedImage> image) {
      CHECK(started);
      const gateway::EncodeEvents last = std::exchange(events, {});
      last.on_done(std::move(image));
    }
  };

  std::shared_ptr<gateway::EncodeCall> Encode(const gateway::Picture& picture, bool likely_new,
                                              const rpc::RequestContext& request,
                                              gateway::EncodeEvents events) override {
    auto call = std::make_shared<Pending>();
    call->picture = picture;
    call->likely_new = likely_new;
    call->request = request;
    call->events = std::move(events);
    calls.push_back(call);
    return call;
  }

  std::vector<std::shared_ptr<Pending>> calls;
};

// An answer whose events a test sends by hand, once it was begun.
template <typename Events>
struct FakeDecodeCall : gateway::DecodeCall {
  v1::DecodeStart start;
  std::shared_ptr<Events> events;  // null once it has ended
  std::vector<uint32_t> rows_ready;
  int resumed = 0;
  bool started = false, cancelled = false;
  const std::shared_ptr<gateway::Hearing> heard = std::make_shared<gateway::Hearing>();

  void Start() override {
    CHECK(!std::exchange(started, true));
    if (cancelled) Cancel();
  }
  void RowsReady(const std::vector<uint32_t>& images) override {
    rows_ready.insert(rows_ready.end(), images.begin(), images.end());
  }
  void Resume() override { ++resumed; }
  void Cancel() override {
    cancelled = true;
    if (started) End(absl::CancelledError("cancelled"));
  }
  std::shared_ptr<const gateway::Hearing> hearing() const override { return heard; }
  void NeedRows(uint32_t image) {
    CHECK(started);
    ++heard->words;
    v1::NeedRows need;
    need.add_images(image);
    events->OnNeedRows(need);
  }
  bool Piece(const std::string& text, int logprobs = 0) {
    CHECK(started);
    ++heard->words;
    heard->told = true;
    v1::TextPiece piece;
    piece.set_text(text);
    for (int i = 0; i < logprobs; ++i) piece.add_logprobs()->mutable_chosen()->set_id(i);
    return events->OnPiece(std::move(piece));
  }
  void End(const absl::Status& status, const v1::DecodeEnd& end = {}) {
    if (!events) return;
    CHECK(started);
    Finish(std::exchange(events, nullptr), status, end);
  }

 protected:
  virtual void Finish(std::shared_ptr<Events> events, const absl::Status& status,
                      const v1::DecodeEnd& end) = 0;
};

// Reading ahead that a test ends by hand, once it was begun.
struct FakePrefill : gateway::Call {
  v1::DecodeServicePrefillRequest start;
  std::string affinity;  // where there are replicas to choose from
  gateway::DecodePeer::PrefillDone done;
  bool started = false, cancelled = false;
  void Start() override {
    CHECK(!std::exchange(started, true));
    if (cancelled) Cancel();
  }
  void Cancel() override {
    cancelled = true;
    if (started) End(absl::CancelledError("cancelled"));
  }
  void End(const absl::StatusOr<v1::DecodeServicePrefillResponse>& result) {
    if (!done) return;
    CHECK(started);
    std::exchange(done, nullptr)(result);
  }
};

// A decode service whose events a test sends by hand, of calls that were begun.
class FakeDecodeClient final : public gateway::DecodeClient {
 public:
  struct Stream final : FakeDecodeCall<gateway::DecodeEvents> {
    std::string affinity;
    absl::Duration patience;

   private:
    void Finish(std::shared_ptr<gateway::DecodeEvents> last, const absl::Status& status,
                const v1::DecodeEnd& end) override {
      last->OnDone(status, end);
    }
  };

  std::shared_ptr<gateway::DecodeCall> Generate(
      std::shared_ptr<const v1::DecodeStart> start, const rpc::RequestContext&,
      const gateway::Placement& placement, std::shared_ptr<gateway::DecodeEvents> events) override {
    auto call = std::make_shared<Stream>();
    call->start = *start;
    call->affinity = placement.affinity;
    call->patience = placement.patience;
    call->events = std::move(events);
    calls.push_back(call);
    return call;
  }

  std::shared_ptr<gateway::Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                         const rpc::RequestContext&, const std::string& affinity,
                                         PrefillDone done) override {
    auto call = std::make_shared<FakePrefill>();
    call->start = start;
    call->affinity = affinity;
    call->done = std::move(done);
    prefills.push_back(call);
    return call;
  }

  gateway::DecodeWaits Waits(const std::string&) override { return waits; }

  gateway::DecodeWaits waits;
  std::vector<std::shared_ptr<Stream>> calls;
  std::vector<std::shared_ptr<FakePrefill>> prefills;
};

// One replica of a decode service, played in the same way.
class FakeDecodePeer final : public gateway::DecodePeer {
 public:
  struct Stream final : FakeDecodeCall<gateway::AttemptEvents> {
    AttemptDone done;
    std::vector<uint32_t> needed;  // pictures, unanswered
    bool has_pieces = false;

    void RowsReady(const std::vector<uint32_t>& images) override {
      for (const uint32_t image : images) {
        if (std::erase(needed, image) > 0) rows_ready.push_back(image);
      }
    }
    void NeedRows(uint32_t image) {
      needed.push_back(image);
      FakeDecodeCall::NeedRows(image);
    }
    bool Piece(const std::string& text) {
      has_pieces = true;
      return FakeDecodeCall::Piece(text);
    }

   private:
    void Finish(std::shared_ptr<gateway::AttemptEvents>, const absl::Status& status,
                const v1::DecodeEnd& end) override {
      const AttemptDone last = std::exchange(done, nullptr);
      last({status, end, has_pieces});
    }
  };

  std::shared_ptr<gateway::DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                                const rpc::RequestContext&,
                                                std::shared_ptr<gateway::AttemptEvents> events,
                                                AttemptDone done) override {
    auto call = std::make_shared<Stream>();
    call->start = *start;
    call->events = std::move(events);
    call->done = std::move(done);
    calls.push_back(call);
    return call;
  }
  std::shared_ptr<gateway::Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                         const rpc::RequestContext&, PrefillDone done) override {
    auto call = std::make_shared<FakePrefill>();
    call->start = start;
    call->done = std::move(done);
    prefills.push_back(call);
    return call;
  }

  std::vector<std::shared_ptr<Stream>> calls;
  std::vector<std::shared_ptr<FakePrefill>> prefills;
};

}  // namespace tessera::testing
