#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/rpc/trace/request_context.h"
#include "services/gateway/fleet/vision_client.h"
#include "tessera/v1/decode.pb.h"

namespace tessera::gateway {

// What one replica says of an answer. One call at a time, on any thread.
class AttemptEvents {
 public:
  virtual ~AttemptEvents() = default;
  virtual void OnAccepted(const v1::Accepted& accepted) = 0;
  virtual void OnNeedRows(const v1::NeedRows& need) = 0;
  // False: taken, but no more until DecodeCall::Resume.
  virtual bool OnPiece(v1::TextPiece piece) = 0;
};

// How that ended.
struct AttemptEnd {
  absl::Status status;
  v1::DecodeEnd end{};      // where the status is OK
  bool has_pieces = false;  // at least one came
};

class DecodeCall : public Call {
 public:
  // Says that records asked for by NeedRows exist. Others are ignored: another attempt may have
  // asked for them.
  virtual void RowsReady(const std::vector<uint32_t>& images) = 0;
  // Goes on after an OnPiece that said false: once for each, perhaps before it has returned. Until
  // then nothing is read from the service, so that it pauses the answer.
  virtual void Resume() = 0;
};

// One replica of the decode service. Any thread.
class DecodePeer {
 public:
  virtual ~DecodePeer() = default;
  using AttemptDone = std::function<void(const AttemptEnd&)>;
  // `done` comes exactly once, the last; `events` is kept until then, or until the call was dropped
  // unbegun. Never null.
  virtual std::shared_ptr<DecodeCall> Generate(std::shared_ptr<const v1::DecodeStart> start,
                                               const rpc::RequestContext& request,
                                               std::shared_ptr<AttemptEvents> events,
                                               AttemptDone done) = 0;

  using PrefillDone = std::function<void(absl::StatusOr<v1::DecodeServicePrefillResponse>)>;
  // Ahead-work. `done` comes exactly once. Never null.
  virtual std::shared_ptr<Call> Prefill(const v1::DecodeServicePrefillRequest& start,
                                        const rpc::RequestContext& request, PrefillDone done) = 0;
};

}  // namespace tessera::gateway
