#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "common/base/error.h"
#include "common/rpc/server.h"
#include "common/rpc/status.h"
#include "services/gateway/api/gateway_service.h"
#include "services/gateway/fleet/grpc_decode_peer.h"
#include "services/gateway/fleet/replica_set.h"
#include "services/gateway/fleet/routed_clients.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tests/support/fake_clients.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

constexpr int kPieceBytes = 4 << 10;
constexpr int kPieces = 4000;  // 16 MB
// What sinks, windows and sockets of the way hold of it, generously.
constexpr int kHeldPieces = 400;

std::string PieceText(int index) {
  std::string text = std::to_string(index) + " ";
  text.resize(kPieceBytes, '.');
  return text;
}

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

// A decode service that writes as fast as it is read: `written` stands still while it is not.
class LongAnswers final : public v1::DecodeService::Service {
 public:
  grpc::Status Generate(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::DecodeServiceGenerateResponse, v1::DecodeServiceGenerateRequest>*
          stream) override {
    v1::DecodeServiceGenerateRequest request;
    stream->Read(&request);
    const bool is_long = request.start().messages(0).parts(0).text() == "long";
    v1::DecodeServiceGenerateResponse response;
    for (int i = 0; i < (is_long ? kPieces : 1); ++i) {
      response.mutable_piece()->set_text(PieceText(i));
      if (!stream->Write(response)) {
        ++cancelled;
        return grpc::Status::CANCELLED;
      }
      if (is_long) ++written;
    }
    response.mutable_end()->set_finish_reason(v1::FINISH_REASON_STOP);
    stream->Write(response);
    return grpc::Status::OK;
  }

  std::atomic<int> written{0};
  std::atomic<int> cancelled{0};
};

// A client whose gRPC takes 64 bytes unread, the gateway, and decode behind a channel of its own.
class SlowClientTest : public ::testing::Test {
 protected:
  SlowClientTest() {
    options_.model_name = "m";
    options_.handle_key = std::string(32, 'k');
    options_.last_read_timeout = options_.abort_timeout = absl::Hours(24);
    decode_server_ = *rpc::Server::Start({}, {&decode_}, {"tessera.v1.DecodeService"});
    const auto make = [this](const std::string&) {
      auto replica = std::make_unique<Replica>();
      replica->decode = MakeGrpcDecodePeer(decode_server_->InProcessChannel(), clock_);
      return replica;
    };
    replicas_ = std::make_unique<ReplicaSet>(
        ReplicaSetOptions{.service = "decode", .addresses = {""}},
        ReplicaHooks{.resolve = nullptr, .make = make, .on_change = nullptr}, clock_);
    decode_client_ = MakeRoutedDecodeClient(*replicas_);
    Serve();
  }
  ~SlowClientTest() override {
    server_->Shutdown(absl::ZeroDuration());
    decode_server_->Shutdown(absl::ZeroDuration());
  }

  // With what the options are now.
  void Serve() {
    server_.reset();
    service_ = std::make_unique<GatewayService>(
        ApiDeps{
            options_,
            {options_, resolver_, *decode_client_, clock_, metrics_, admission_, pace_, running_}},
        v1::GetModelInfoResponse());
    server_ = *rpc::Server::Start({.address = "127.0.0.1:0"}, {service_.get()},
                                  {"tessera.v1.GatewayService"});
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                   grpc::InsecureChannelCredentials(), arguments);
    EXPECT_TRUE(
        channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::minutes(5)));
    stub_ = v1::GatewayService::NewStub(channel);
  }

  std::unique_ptr<grpc::ClientReader<v1::GenerateStreamResponse>> Ask(grpc::ClientContext& context,
                                                                      const std::string& question,
                                                                      size_t padding = 0) {
    v1::GenerateStreamRequest request;
    v1::Message& message = *request.mutable_request()->add_messages();
    message.set_role("user");
    message.add_parts()->set_text(question);
    if (padding > 0) message.add_parts()->set_text(std::string(padding, ' '));
    return stub_->GenerateStream(&context, request);
  }

  // Until decode has written nothing for a while, or all; more than the gateway's sink takes.
  void AwaitStandstill() {
    int before = -1, still = 0;
    const int least = static_cast<int>(options_.sink_bytes) / kPieceBytes;
    while ((still < 200 || before < least) && decode_.written.load() < kPieces) {
      still = decode_.written.load() == before ? still + 1 : 0;
      before = decode_.written.load();
      Pause();
    }
  }

  // The standstill may have been one of the machine: then the gateway's sink is full later.
  void AdvanceUntilCancelled(absl::Duration step) {
    for (int i = 0; decode_.cancelled.load() == 0; ++i) {
      if (i % 2000 == 0) clock_.Advance(step);
      Pause();
    }
  }

  // Until every place has come back.
  void AdvanceUntilNobodyIsLeft(absl::Duration step) {
    for (int i = 0; admission_.inflight() > 0 && i < 300'000; ++i) {
      if (i % 100 == 0) clock_.Advance(step);
      Pause();
    }
    EXPECT_EQ(admission_.inflight(), 0);
  }

  metrics::Metrics all_metrics_{"m"};
  RequestMetrics metrics_{all_metrics_};
  ApiOptions options_;
  RunningRequests running_;
  testing::FakeClock clock_;
  testing::FakeVisionClient vision_;
  KnownImages known_{16};
  ImageResolver resolver_{vision_, known_, clock_, "f"};
  Admission admission_{{.max_requests = 8}, clock_};
  Pace pace_;
  LongAnswers decode_;
  std::unique_ptr<rpc::Server> decode_server_;
  std::unique_ptr<DecodeClient> decode_client_;  // outlives the calls of replicas_
  std::unique_ptr<ReplicaSet> replicas_;
  std::unique_ptr<GatewayService> service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<v1::GatewayService::Stub> stub_;
};

TEST_F(SlowClientTest, AClientThatStopsReadingStopsDecodeAndGetsAllOfItLater) {
  grpc::ClientContext context;
  const auto stream = Ask(context, "long");
  AwaitStandstill();
  EXPECT_LT(decode_.written.load(), kHeldPieces);
  std::string text, expected;
  v1::GenerateStreamResponse event;
  while (stream->Read(&event)) text += event.text();
  EXPECT_TRUE(stream->Finish().ok());
  for (int i = 0; i < kPieces; ++i) expected += PieceText(i);
  EXPECT_TRUE(text == expected) << text.size() << " bytes of " << expected.size();
}

TEST_F(SlowClientTest, AClientThatDoesNotReadOnIsAbortedAndDisturbsNobody) {
  grpc::ClientContext context;
  const auto stream = Ask(context, "long");
  AwaitStandstill();
  EXPECT_LT(decode_.written.load(), kHeldPieces);
  grpc::ClientContext other;
  v1::GenerateStreamResponse event;
  const auto quick = Ask(other, "short");
  std::string text;
  while (quick->Read(&event)) text += event.text();
  EXPECT_TRUE(quick->Finish().ok());
  EXPECT_EQ(text, PieceText(0));
  AdvanceUntilCancelled(options_.slow_client_timeout);
  while (stream->Read(&event)) {
  }
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(base::ReasonOf(status), "SLOW_CLIENT");
  admission_.Drain(absl::InfiniteFuture());  // its place is free again
}

TEST_F(SlowClientTest, ADeadlineIsSeenThoughTheAnswerWaitsForItsClient) {
  options_.deadline_cap = absl::Seconds(1);
  grpc::ClientContext context;
  const auto stream = Ask(context, "long");
  AwaitStandstill();
  AdvanceUntilCancelled(absl::Seconds(1));
  v1::GenerateStreamResponse event;
  while (stream->Read(&event)) {
  }
  const absl::Status status = rpc::FromGrpc(stream->Finish());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

// Its window is full, so gRPC can send it neither the text nor the end.
TEST_F(SlowClientTest, AClientThatNeverReadsIsCutAndItsPlaceIsFreeAgain) {
  options_.abort_timeout = absl::Seconds(1);
  grpc::ClientContext context;
  const auto stream = Ask(context, "long");
  AwaitStandstill();
  AdvanceUntilCancelled(options_.slow_client_timeout);
  AdvanceUntilNobodyIsLeft(options_.abort_timeout);
}

TEST_F(SlowClientTest, AClientThatDoesNotReadAWholeAnswerIsCutToo) {
  options_.last_read_timeout = absl::Seconds(30);
  grpc::ClientContext context;
  const auto stream = Ask(context, "short");
  while (admission_.inflight() == 0) Pause();
  AdvanceUntilNobodyIsLeft(options_.last_read_timeout);
  v1::GenerateStreamResponse event;
  while (stream->Read(&event)) {
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

// gRPC keeps a request until its call has ended.
TEST_F(SlowClientTest, WhatRequestsUnderWayHoldTogetherIsBounded) {
  options_.max_message_bytes = options_.max_inflight_bytes = 6000;
  Serve();
  grpc::ClientContext context;
  const auto stream = Ask(context, "long", 4000);
  AwaitStandstill();
  const auto ask = [this](int bytes) {
    grpc::ClientContext other;
    const auto asked = Ask(other, "short", bytes);
    v1::GenerateStreamResponse event;
    while (asked->Read(&event)) {
    }
    return rpc::FromGrpc(asked->Finish());
  };
  EXPECT_TRUE(ask(1000).ok());
  const absl::Status status = ask(4000);
  EXPECT_EQ(base::ReasonOf(status), "QUEUE_FULL") << status;
  EXPECT_TRUE(base::RetryOf(status).has_value());
  context.TryCancel();
  v1::GenerateStreamResponse event;
  while (stream->Read(&event)) {
  }
  stream->Finish();
  bool again = false;  // behind gRPC's own end of the call
  for (int i = 0; i < 300'000 && !again; ++i) {
    again = ask(4000).ok();
    Pause();
  }
  EXPECT_TRUE(again);
}

TEST_F(SlowClientTest, AClientThatGoesWhileItsAnswerWaitsLeavesNothing) {
  {
    grpc::ClientContext context;
    const auto stream = Ask(context, "long");
    AwaitStandstill();
    context.TryCancel();
    v1::GenerateStreamResponse event;
    while (stream->Read(&event)) {
    }
    EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  while (decode_.cancelled.load() == 0) Pause();
  admission_.Drain(absl::InfiniteFuture());
}

}  // namespace
}  // namespace tessera::gateway
