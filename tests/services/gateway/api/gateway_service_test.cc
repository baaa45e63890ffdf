#include "services/gateway/api/gateway_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/services/gateway/api/gateway_service_fixture.h"

namespace tessera::gateway {
namespace {

TEST_F(GatewayServiceTest, UnaryAndStreamedAnswersAreEqual) {
  grpc::ClientContext unary;
  v1::GenerateResponse response;
  ASSERT_TRUE(stub_->Generate(&unary, Question("hello shelf"), &response).ok());
  EXPECT_EQ(response.text(), "hello shelf");
  grpc::ClientContext streamed;
  v1::GenerateStreamRequest request;
  *request.mutable_request() = Question("hello shelf");
  const auto reader = stub_->GenerateStream(&streamed, request);
  std::string text;
  int ends = 0;
  v1::GenerateStreamResponse event;
  while (reader->Read(&event)) {
    EXPECT_EQ(ends, 0) << "an event after the end";
    if (event.has_end()) {
      ++ends;
      EXPECT_EQ(event.end().finish_reason(), v1::FINISH_REASON_STOP);
    }
    text += event.text();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "hello shelf");
  EXPECT_EQ(ends, 1);
}

// One per token, in order, though the first comes before there is text.
TEST_F(GatewayServiceTest, LogProbabilitiesComeBesideTheTextWhenTheyAreAskedFor) {
  v1::GenerateStreamRequest request;
  *request.mutable_request() = Question("shelf");
  grpc::ClientContext without;
  v1::GenerateResponse response;
  ASSERT_TRUE(stub_->Generate(&without, request.request(), &response).ok());
  EXPECT_EQ(response.logprobs_size(), 0);
  request.mutable_request()->mutable_options()->set_top_logprobs(0);
  grpc::ClientContext unary;
  ASSERT_TRUE(stub_->Generate(&unary, request.request(), &response).ok());
  EXPECT_EQ(response.text(), "shelf");
  std::vector<uint32_t> ids;
  for (const v1::TokenLogprob& token : response.logprobs()) ids.push_back(token.chosen().id());
  EXPECT_EQ(ids, (std::vector<uint32_t>{1000, 's', 'h', 'e', 'l', 'f'}));
  grpc::ClientContext streamed;
  const auto reader = stub_->GenerateStream(&streamed, request);
  std::vector<uint32_t> told;
  v1::GenerateStreamResponse event;
  while (reader->Read(&event)) {
    for (const v1::TokenLogprob& token : event.logprobs()) told.push_back(token.chosen().id());
    EXPECT_EQ(event.end().logprobs_size(), 0);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(told, ids);
}

TEST_F(GatewayServiceTest, RequestIdsAreEchoedOrMade) {
  for (const std::string& id : {std::string("my-request-7"), std::string()}) {
    grpc::ClientContext context;
    if (!id.empty()) context.AddMetadata("x-request-id", id);
    v1::GetModelInfoResponse response;
    ASSERT_TRUE(stub_->GetModelInfo(&context, {}, &response).ok());
    const auto& metadata = context.GetServerInitialMetadata();
    const auto found = metadata.find("x-request-id");
    ASSERT_NE(found, metadata.end());
    const std::string echoed(found->second.data(), found->second.size());
    if (id.empty()) {
      EXPECT_EQ(echoed.size(), 32u);
    } else {
      EXPECT_EQ(echoed, id);
    }
  }
}

TEST_F(GatewayServiceTest, ErrorsTravelWithTheirDetails) {
  grpc::ClientContext context;
  v1::GenerateRequest request = Question("x");
  request.mutable_options()->set_top_p(7);
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, request, &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(base::ReasonOf(status), "BAD_PARAMETER");
  EXPECT_EQ(base::FieldOf(status), "options.top_p");
}

TEST_F(GatewayServiceTest, WhatCannotBeParsedIsInternalInEveryMethod) {
  const std::string no_utf8(
      "\x12\x0d\x0a\x04user\x12\x05\x0a\x03"
      "a\xff"
      "b");                                                       // GenerateRequest
  const std::string wrapped = std::string("\x0a\x0f") + no_utf8;  // GenerateStreamRequest
  const std::string session("\x12\x02\xff\xfe");                  // UploadImageRequest
  const std::string data(
      "\x0a\x03"
      "abc");
  const std::string cut("\x0a\x7f");  // a length without its bytes
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"Generate", {no_utf8}},       {"Generate", {cut}},
      {"GenerateStream", {wrapped}}, {"GenerateStream", {cut}},
      {"GetModelInfo", {cut}},       {"UploadImage", {session}},
      {"UploadImage", {data, cut}},  {"UploadImage", {data, session, data}}};
  for (const auto& [method, messages] : cases) {
    const absl::Status status = Raw(method, messages);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << method << ": " << status;
    EXPECT_NE(status.message().find("UTF-8"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Raw("UploadImage", {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Raw("UploadImage", {data, data}).ok());
  EXPECT_EQ(Raw("NoSuchMethod", {data}).code(), absl::StatusCode::kUnimplemented);
  admission_.Drain(absl::InfiniteFuture());  // no refused call keeps its place
}

TEST_F(GatewayServiceTest, BeyondTheLimitIsRefusedAtOnceWithADelay) {
  std::vector<absl::StatusOr<Admission::Place>> places;
  for (int i = 0; i < 2; ++i) places.push_back(admission_.Enter(""));
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, Question("x"), &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(base::RetryOf(status).has_value());
  places.clear();
  grpc::ClientContext again;
  EXPECT_TRUE(stub_->Generate(&again, Question("x"), &response).ok());
}

TEST_F(GatewayServiceTest, DrainingRefusesNewWork) {
  admission_.Drain(clock_.Now());
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const absl::Status status = rpc::FromGrpc(stub_->Generate(&context, Question("x"), &response));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(base::ReasonOf(status), "DRAINING");
  EXPECT_TRUE(base::RetryOf(status).has_value());
}

TEST_F(GatewayServiceTest, ManyClientsGetTheirOwnText) {
  Admission wide({.max_requests = 64}, clock_);
  GatewayService service(
      {options_, {options_, resolver_, decode_, clock_, metrics_, wide, pace_, running_}}, {});
  auto server = rpc::Server::Start({}, {&service}, {});
  ASSERT_TRUE(server.ok());
  const auto stub = v1::GatewayService::NewStub((*server)->InProcessChannel());
  std::vector<std::thread> clients;
  std::atomic<int> right{0};
  for (int i = 0; i < 16; ++i) {
    clients.emplace_back([&, i] {
      const std::string text = "client " + std::to_string(i);
      grpc::ClientContext context;
      v1::GenerateResponse response;
      if (stub->Generate(&context, Question(text), &response).ok() && response.text() == text) {
        right.fetch_add(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right.load(), 16);
}

}  // namespace
}  // namespace tessera::gateway
