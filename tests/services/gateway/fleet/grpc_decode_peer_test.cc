#include "services/gateway/fleet/grpc_decode_peer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/rpc/server.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tests/support/fake_clock.h"

namespace tessera::gateway {
namespace {

// Needs rows of picture 0, says a piece for each announcement of rows that it hears, ends with the
// announcement of picture 0; or fails where the question is "fail".
class NeedsRows final : public v1::DecodeService::Service {
 public:
  grpc::Status Generate(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::DecodeServiceGenerateResponse, v1::DecodeServiceGenerateRequest>*
          stream) override {
    v1::DecodeServiceGenerateRequest request;
    stream->Read(&request);
    if (request.start().tenant() == "fail") return {grpc::StatusCode::UNAVAILABLE, "down"};
    v1::DecodeServiceGenerateResponse response;
    response.mutable_need_rows()->add_images(0);
    stream->Write(response);
    bool ready = false;
    while (!ready && stream->Read(&request)) {
      std::string heard;
      for (const uint32_t image : request.rows_ready().images()) {
        heard += std::to_string(image);
        ready = ready || image == 0;
      }
      response.mutable_piece()->set_text(heard);
      stream->Write(response);
    }
    response.mutable_end()->set_finish_reason(v1::FINISH_REASON_STOP);
    stream->Write(response);
    return grpc::Status::OK;
  }
};

struct Recorder final : AttemptEvents {
  void OnAccepted(const v1::Accepted&) override {}
  void OnNeedRows(const v1::NeedRows&) override { needed.set_value(); }
  bool OnPiece(v1::TextPiece piece) override {
    texts.push_back(piece.text());
    return true;
  }
  std::promise<void> needed;
  std::vector<std::string> texts;  // read when it has ended
};

class GrpcDecodePeerTest : public ::testing::Test {
 protected:
  GrpcDecodePeerTest()
      : server_(*rpc::Server::Start({}, {&decode_}, {"tessera.v1.DecodeService"})) {
    peer_ = MakeGrpcDecodePeer(server_->InProcessChannel(), clock_);
  }
  std::shared_ptr<DecodeCall> Ask(const std::string& tenant) {
    start_->set_tenant(tenant);
    return peer_->Generate(
        start_, {.request_id = {}, .trace = {}, .deadline = clock_.Now() + absl::Minutes(5)},
        events_, [this](const AttemptEnd& end) { end_.set_value(end); });
  }

  NeedsRows decode_;
  testing::FakeClock clock_;
  std::unique_ptr<rpc::Server> server_;
  const std::shared_ptr<v1::DecodeStart> start_ = std::make_shared<v1::DecodeStart>();
  const std::shared_ptr<Recorder> events_ = std::make_shared<Recorder>();
  std::promise<AttemptEnd> end_;
  std::unique_ptr<DecodePeer> peer_;  // first to go: waits for its calls
};

TEST_F(GrpcDecodePeerTest, OnlyRowsThatWereAskedForAreAnnounced) {
  const auto call = Ask("t");
  call->Start();
  events_->needed.get_future().get();
  call->RowsReady({1});
  call->RowsReady({1, 0, 2});
  const AttemptEnd end = end_.get_future().get();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(end.end.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(events_->texts, std::vector<std::string>{"0"});
  EXPECT_TRUE(end.has_pieces);
}

TEST_F(GrpcDecodePeerTest, WhatEndsBeforeItsFirstPieceSaysSoAndLeavesTheStartToOthers) {
  Ask("fail")->Start();  // it goes on when it is dropped
  const AttemptEnd end = end_.get_future().get();
  EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
  EXPECT_FALSE(end.has_pieces);
  peer_ = nullptr;
  EXPECT_EQ(start_->tenant(), "fail");
}

TEST_F(GrpcDecodePeerTest, ACallThatIsCancelledBeforeItBeginsEndsAtOnceWhenItDoes) {
  const auto call = Ask("t");
  call->Cancel();
  call->Start();
  EXPECT_TRUE(absl::IsCancelled(end_.get_future().get().status));
}

TEST_F(GrpcDecodePeerTest, ACallThatNeverBeginsSaysNothing) {
  auto call = Ask("t");
  call = nullptr;
  peer_ = nullptr;  // waits for no end
  EXPECT_EQ(end_.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(events_.use_count(), 1);
}

}  // namespace
}  // namespace tessera::gateway
