#include "common/rpc/call_metrics.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/rpc/server.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/send_raw.h"

namespace tessera::rpc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kService[] = "tessera.v1.GatewayService";

// Generate: INVALID_ARGUMENT for a model named "bad", never ends for "slow", else OK. The rest is
// not written.
class SomeService final : public v1::GatewayService::CallbackService {
  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* request,
                                     v1::GenerateResponse*) override {
    class Slow final : public grpc::ServerUnaryReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    if (request->model() == "slow") return new Slow();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(request->model() == "bad"
                        ? grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "bad")
                        : grpc::Status::OK);
    return reactor;
  }
};

class CallMetricsTest : public ::testing::Test {
 protected:
  grpc::StatusCode Generate(const std::string& model, grpc::ClientContext* given = nullptr) {
    grpc::ClientContext own;
    v1::GenerateRequest request;
    request.set_model(model);
    v1::GenerateResponse response;
    return stub_->Generate(given != nullptr ? given : &own, request, &response).error_code();
  }
  std::string Started(const std::string& method, int count) {
    return absl::StrCat("grpc_server_call_started_total{model_name=\"m\",grpc_method=\"", method,
                        "\"} ", count, "\n");
  }
  std::string Ended(const std::string& method, const std::string& status, int count) {
    return absl::StrCat("grpc_server_call_duration_seconds_count{model_name=\"m\",grpc_method=\"",
                        method, "\",grpc_status=\"", status, "\"} ", count, "\n");
  }
  void Call(const std::string& method) { testing::SendRaw(channel_, method, {""}).IgnoreError(); }

  const std::string generate_ = absl::StrCat(kService, "/Generate");
  metrics::Metrics metrics_{"m"};
  SomeService service_;
  std::unique_ptr<Server> server_ = Server::Start({.address = "", .metrics = &metrics_},
                                                  {&service_}, {kService, "no.such.Service"})
                                        .value();
  std::shared_ptr<grpc::Channel> channel_ = server_->InProcessChannel();
  std::unique_ptr<v1::GatewayService::Stub> stub_ = v1::GatewayService::NewStub(channel_);
};

TEST_F(CallMetricsTest, EveryMethodIsThereAtZeroFromTheStart) {
  const std::string text = metrics_.Text();
  for (const char* method : {"Generate", "GenerateStream", "UploadImage", "GetModelInfo"}) {
    EXPECT_THAT(text, HasSubstr(Started(absl::StrCat(kService, "/", method), 0)));
    EXPECT_THAT(text, HasSubstr(Ended(absl::StrCat(kService, "/", method), "OK", 0)));
  }
  EXPECT_THAT(text, HasSubstr(Started("other", 0)));
}

TEST_F(CallMetricsTest, CallsCountByMethodAndStatus) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Generate("good"), grpc::StatusCode::OK);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Generate("bad"), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  EXPECT_EQ(stub_->GetModelInfo(&context, {}, std::make_unique<v1::GetModelInfoResponse>().get())
                .error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr(Started(generate_, 5)));
  EXPECT_THAT(text, HasSubstr(Ended(generate_, "OK", 3)));
  EXPECT_THAT(text, HasSubstr(Ended(generate_, "INVALID_ARGUMENT", 2)));
  EXPECT_THAT(text, HasSubstr(Ended(absl::StrCat(kService, "/GetModelInfo"), "UNIMPLEMENTED", 1)));
}

TEST_F(CallMetricsTest, WhatCannotBeParsedCountsAsTheClientSeesIt) {
  const std::string cut("\x0a\x7f");
  EXPECT_EQ(testing::SendRaw(channel_, "/" + generate_, {cut}).code(), absl::StatusCode::kInternal);
  EXPECT_THAT(metrics_.Text(), HasSubstr(Ended(generate_, "INTERNAL", 1)));
}

TEST_F(CallMetricsTest, AClientThatLeavesIsCancelled) {
  grpc::ClientContext context;
  std::thread leaver([&] {
    while (metrics_.Text().find(Started(generate_, 1)) == std::string::npos) {
      std::this_thread::yield();
    }
    context.TryCancel();
  });
  EXPECT_EQ(Generate("slow", &context), grpc::StatusCode::CANCELLED);
  leaver.join();
  server_->Shutdown(absl::InfiniteDuration());  // the client knows it first
  EXPECT_THAT(metrics_.Text(), HasSubstr(Ended(generate_, "CANCELLED", 1)));
}

TEST_F(CallMetricsTest, NoClientMakesSeries) {
  const std::string health = "/grpc.health.v1.Health/Check";
  Call(health);
  for (int i = 0; i < 20; ++i) {
    Call(absl::StrCat("/made.up.Service/Method", i));
    Call(absl::StrCat("/", kService, "/MadeUp", i));
  }
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr(Started("other", 41)));
  EXPECT_THAT(text, Not(HasSubstr("ade")));
}

}  // namespace
}  // namespace tessera::rpc
