#include "services/gateway/fleet/watch_load_call.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "common/rpc/status.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::gateway {
namespace {

ReplicaLoad LoadOf(const v1::VisionServiceWatchLoadResponse& told) {
  ReplicaLoad load;
  load.draining = told.draining();
  load.broken = told.broken();
  load.full = told.pending_limit() > 0 && told.pending_images() >= told.pending_limit();
  load.pressure = 1.0 * told.pending_images() / std::max(1u, told.pending_limit());
  return load;
}

ReplicaLoad LoadOf(const v1::DecodeServiceWatchLoadResponse& told) {
  ReplicaLoad load;
  load.draining = told.draining();
  load.broken = told.broken();
  load.full = told.full();
  const double taken =
      1.0 - 1.0 * told.blocks_free() / std::max(1u, told.blocks_total());  // of the pool
  const double queued = 1.0 * told.waiting() / std::max(1u, told.waiting_limit());
  load.pressure = std::max(taken, queued);
  load.free_tokens = int64_t{told.blocks_free()} * told.block_tokens();
  load.waiting = told.waiting();
  load.requests_ended = told.requests_ended();
  return load;
}

// One stream. Owns itself until OnDone.
template <typename Service, typename Request, typename Response>
class LoadCall final : public grpc::ClientReadReactor<Response>,
                       public Call,
                       public std::enable_shared_from_this<LoadCall<Service, Request, Response>> {
 public:
  LoadCall(rpc::CallTracker& tracker, const std::shared_ptr<grpc::Channel>& channel,
           absl::Duration interval, Replica::OnLoad on_load, Replica::OnEnd on_end)
      : token_(tracker),
        stub_(Service::NewStub(channel)),
        on_load_(std::move(on_load)),
        on_end_(std::move(on_end)) {
    context_.set_wait_for_ready(true);
    request_.set_interval_milliseconds(static_cast<uint32_t>(absl::ToInt64Milliseconds(interval)));
  }

  void Start() override {
    self_ = this->shared_from_this();
    stub_->async()->WatchLoad(&context_, &request_, this);
    this->StartRead(&response_);
    this->StartCall();
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    on_load_(LoadOf(response_));
    this->StartRead(&response_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<LoadCall> self = std::move(self_);
    on_end_(rpc::FromGrpc(status));
  }

 private:
  const rpc::CallTracker::Token token_;  // first: goes last
  const std::unique_ptr<typename Service::Stub> stub_;
  const Replica::OnLoad on_load_;
  const Replica::OnEnd on_end_;
  grpc::ClientContext context_;
  Request request_;
  Response response_;
  std::shared_ptr<LoadCall> self_;
};

}  // namespace

std::shared_ptr<Call> WatchVisionLoad(const std::shared_ptr<grpc::Channel>& channel,
                                      rpc::CallTracker& tracker, absl::Duration interval,
                                      Replica::OnLoad on_load, Replica::OnEnd on_end) {
  return std::make_shared<LoadCall<v1::VisionService, v1::VisionServiceWatchLoadRequest,
                                   v1::VisionServiceWatchLoadResponse>>(
      tracker, channel, interval, std::move(on_load), std::move(on_end));
}

std::shared_ptr<Call> WatchDecodeLoad(const std::shared_ptr<grpc::Channel>& channel,
                                      rpc::CallTracker& tracker, absl::Duration interval,
                                      Replica::OnLoad on_load, Replica::OnEnd on_end) {
  return std::make_shared<LoadCall<v1::DecodeService, v1::DecodeServiceWatchLoadRequest,
                                   v1::DecodeServiceWatchLoadResponse>>(
      tracker, channel, interval, std::move(on_load), std::move(on_end));
}

}  // namespace tessera::gateway
