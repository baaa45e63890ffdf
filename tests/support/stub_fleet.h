#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "common/metrics/metrics.h"
#include "common/rpc/server.h"
#include "services/gateway/gateway_runtime.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

// A gateway over TCP whose vision and decode answer everything at once.
namespace tessera::testing {

// Asks for the bytes of every picture, then has its record. Any thread.
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

// Answers "37", and never asks for rows. Any thread.
class StubDecodeService final : public v1::DecodeService::CallbackService {
 public:
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

  std::atomic<int> calls_{0};
};

// CHECKs that it can be started. Any thread.
class StubFleet {
 public:
  StubFleet();
  ~StubFleet();

  std::string address() const;  // of the gateway
  gateway::GatewayRuntime& gateway() { return *runtime_; }
  const StubVisionService& vision() const { return vision_; }
  const StubDecodeService& decode() const { return decode_; }

 private:
  // In the order of birth.
  metrics::Metrics metrics_{"m"};
  StubVisionService vision_;
  StubDecodeService decode_;
  std::unique_ptr<rpc::Server> vision_server_, decode_server_;
  std::unique_ptr<gateway::GatewayRuntime> runtime_;
  std::unique_ptr<rpc::Server> server_;
};

}  // namespace tessera::testing
