#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::testing {

// A vision service whose answers a test gives by hand. One thread, or calls in turn.
class FakeVisionClient final : public gateway::VisionClient {
 public:
  struct Pending : gateway::Call {
    gateway::Picture picture;
    rpc::RequestContext request;
    EncodeDone done;
    bool cancelled = false;
    std::weak_ptr<const void> rows;  // kept, once they are ready
    void Cancel() override {
      cancelled = true;
      if (done) std::exchange(done, nullptr)(absl::CancelledError("cancelled"));
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
      std::exchange(done, nullptr)(std::move(image));
    }
    void Fail(absl::Status status) { std::exchange(done, nullptr)(std::move(status)); }
  };

  std::shared_ptr<gateway::Call> Encode(const gateway::Picture& picture,
                                        const rpc::RequestContext& request,
                                        EncodeDone done) override {
    auto call = std::make_shared<Pending>();
    call->picture = picture;
    call->request = request;
    call->done = std::move(done);
    calls.push_back(call);
    return call;
  }

  std::vector<std::shared_ptr<Pending>> calls;
};

// A decode service whose events a test sends by hand.
class FakeDecodeClient final : public gateway::DecodeClient {
 public:
  struct Stream : gateway::DecodeCall {
    v1::DecodeStart start;
    std::string affinity;
    absl::Duration patience;
    std::shared_ptr<gateway::DecodeEvents> events;
    std::vector<uint32_t> rows_ready;
    bool cancelled = false;
    void RowsReady(const std::vector<uint32_t>& images) override {
      rows_ready.insert(rows_ready.end(), images.begin(), images.end());
    }
    int resumed = 0;
    void Resume() override { ++resumed; }
    void Cancel() override {
      cancelled = true;
      End(absl::CancelledError("cancelled"));
    }
    void NeedRows(uint32_t image) {
      v1::NeedRows need;
      need.add_images(image);
      events->OnNeedRows(need);
    }
    bool Piece(const std::string& text, int logprobs = 0) {
      v1::TextPiece piece;
      piece.set_text(text);
      for (int i = 0; i < logprobs; ++i) piece.add_logprobs()->mutable_chosen()->set_id(i);
      return events->OnPiece(std::move(piece));
    }
    void End(const absl::Status& status, const v1::DecodeEnd& end = {}) {
      if (events) std::exchange(events, nullptr)->OnDone(status, end);
    }
  };

  std::shared_ptr<gateway::DecodeCall> Generate(
      const v1::DecodeStart& start, const rpc::RequestContext&, const gateway::Placement& placement,
      std::shared_ptr<gateway::DecodeEvents> events) override {
    auto call = std::make_shared<Stream>();
    call->start = start;
    call->affinity = placement.affinity;
    call->patience = placement.patience;
    call->events = std::move(events);
    calls.push_back(call);
    return call;
  }

  struct PendingPrefill : gateway::Call {
    v1::DecodeServicePrefillRequest start;
    std::string affinity;
    PrefillDone done;
    bool cancelled = false;
    void Cancel() override {
      cancelled = true;
      End(absl::CancelledError("cancelled"));
    }
    void End(const absl::StatusOr<v1::DecodeServicePrefillResponse>& result) {
      if (done) std::exchange(done, nullptr)(result);
    }
  };
  std::shared_ptr<gateway::Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                         const rpc::RequestContext&, const std::string& affinity,
                                         PrefillDone done) override {
    auto call = std::make_shared<PendingPrefill>();
    call->start = start;
    call->affinity = affinity;
    call->done = std::move(done);
    prefills.push_back(call);
    return call;
  }

  gateway::DecodeWaits Waits(const std::string&) override { return waits; }

  gateway::DecodeWaits waits;
  std::vector<std::shared_ptr<Stream>> calls;
  std::vector<std::shared_ptr<PendingPrefill>> prefills;
};

}  // namespace tessera::testing
