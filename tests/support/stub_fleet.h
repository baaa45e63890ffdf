#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "services/gateway/gateway_runtime.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

// A gateway over TCP whose vision and decode answer everything at once.
namespace tessera::testing {

// Plans every picture as soon as it has what is not held of it, and has its record with the last
// byte. Any thread.
class StubVisionService final : public v1::VisionService::CallbackService {
 public:
  int calls() const { return calls_.load(); }  // under way

 private:
  grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* Encode(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext* context,
      const v1::VisionServiceWatchLoadRequest* request) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::VisionServiceGetInfoRequest* request,
                                    v1::VisionServiceGetInfoResponse* info) override;

  std::atomic<int> calls_{0};
};

// Answers "37" as often as the request has max_tokens, at least once, and never asks for rows. Any
// thread.
class StubDecodeService final : public v1::DecodeService::CallbackService {
 public:
  // `gap`: before each piece; a thread of gRPC waits.
  explicit StubDecodeService(absl::Duration gap = absl::ZeroDuration()) : gap_(gap) {}
  int calls() const { return calls_.load(); }  // under way

 private:
  grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
  Generate(grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<v1::DecodeServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext* context,
      const v1::DecodeServiceWatchLoadRequest* request) override;
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::DecodeServiceGetInfoRequest* request,
                                    v1::DecodeServiceGetInfoResponse* info) override;

  const absl::Duration gap_;
  std::atomic<int> calls_{0};
};

// The two behind TCP ports of 127.0.0.1. CHECKs that it can be started. Any thread.
class StubPeers {
 public:
  // Port 0 takes a free one. `gap`: as of StubDecodeService.
  explicit StubPeers(int vision_port = 0, int decode_port = 0,
                     absl::Duration gap = absl::ZeroDuration());
  ~StubPeers();

  int vision_port() const { return vision_server_->port(); }
  int decode_port() const { return decode_server_->port(); }
  const StubVisionService& vision() const { return vision_; }
  const StubDecodeService& decode() const { return decode_; }

 private:
  StubVisionService vision_;
  StubDecodeService decode_;
  std::unique_ptr<rpc::Server> vision_server_, decode_server_;
};

// CHECKs that it can be started. Any thread.
class StubFleet {
 public:
  StubFleet();
  // Of stubs that another process has, or begins to have within minutes.
  StubFleet(int vision_port, int decode_port);
  ~StubFleet();

  std::string address() const;  // of the gateway
  gateway::GatewayRuntime& gateway() { return *runtime_; }
  // REQUIRES: its own stubs.
  const StubVisionService& vision() const { return peers_->vision(); }
  const StubDecodeService& decode() const { return peers_->decode(); }

 private:
  explicit StubFleet(std::unique_ptr<StubPeers> peers);
  void Start(int vision_port, int decode_port);

  // In the order of birth.
  metrics::Metrics metrics_{"m"};
  std::unique_ptr<StubPeers> peers_;  // null: they are elsewhere
  std::unique_ptr<gateway::GatewayRuntime> runtime_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tessera::testing
