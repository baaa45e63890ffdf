// Keys and certificates at the one process: who is answered, and that tenants share nothing.
#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/rpc/status.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tests/support/certificates.h"
#include "tools/client/dial.h"
#include "tools/local_server.h"

namespace tessera::tools {
namespace {

constexpr char kModel[] = "models/shelf-vqa";
constexpr char kQuestion[] = "What is the price on row 2?";

class KeysTest : public ::testing::Test {
 protected:
  LocalServerOptions Options() {
    std::ofstream(dir_.path() + "/keys")
        << "one sha256:" << base::ToHex(base::Sha256Of("key-of-one")) << "\n"
        << "two sha256:" << base::ToHex(base::Sha256Of("key-of-two")) << "\n";
    LocalServerOptions options;
    options.model_dir = kModel;
    options.grpc_address = "127.0.0.1:0";
    options.access.api_keys_file = dir_.path() + "/keys";
    return options;
  }
  void Start() {
    auto server = LocalServer::Start(Options());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::GatewayService::NewStub(server_->Channel());
  }

  // With the key, where there is one.
  static void Prepare(grpc::ClientContext& context, const std::string& key) {
    AddKey(key, context);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(300));
  }
  absl::StatusOr<v1::GenerateResponse> Ask(const std::string& key,
                                           const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    Prepare(context, key);
    v1::GenerateResponse response;
    const grpc::Status status = stub_->Generate(&context, request, &response);
    if (!status.ok()) return rpc::FromGrpc(status);
    return response;
  }
  absl::StatusOr<std::string> Upload(const std::string& key, const std::string& session = "") {
    grpc::ClientContext context;
    Prepare(context, key);
    v1::UploadImageResponse response;
    const auto writer = stub_->UploadImage(&context, &response);
    v1::UploadImageRequest message;
    message.set_session(session);
    message.set_data(base::ReadFile(absl::StrCat(kModel, "/demo/shelf1.jpg")).value());
    writer->Write(message);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return rpc::FromGrpc(status);
    return response.handle();
  }
  static v1::GenerateRequest Question(const std::string& handle = "") {
    v1::GenerateRequest request;
    v1::Message& message = *request.add_messages();
    message.set_role("user");
    v1::Image& image = *message.add_parts()->mutable_image();
    if (handle.empty()) {
      image.mutable_inline_data()->set_data(
          base::ReadFile(absl::StrCat(kModel, "/demo/shelf1.jpg")).value());
    } else {
      image.set_handle(handle);
    }
    message.add_parts()->set_text(kQuestion);
    return request;
  }

  const testing::TempDir dir_;
  std::unique_ptr<LocalServer> server_;
  std::unique_ptr<v1::GatewayService::Stub> stub_;
};

TEST_F(KeysTest, EveryMethodAsksForAKey) {
  Start();
  for (const auto& [key, reason] :
       {std::pair("", "KEY_MISSING"), std::pair("key-of-three", "KEY_UNKNOWN")}) {
    std::vector<absl::Status> ends = {Ask(key, Question()).status(), Upload(key).status()};
    grpc::ClientContext streamed, info;
    Prepare(streamed, key);
    Prepare(info, key);
    v1::GenerateStreamRequest request;
    *request.mutable_request() = Question();
    v1::GenerateStreamResponse event;
    const auto reader = stub_->GenerateStream(&streamed, request);
    EXPECT_FALSE(reader->Read(&event));
    ends.push_back(rpc::FromGrpc(reader->Finish()));
    v1::GetModelInfoResponse model;
    ends.push_back(rpc::FromGrpc(stub_->GetModelInfo(&info, {}, &model)));
    EXPECT_EQ(model.model(), "");
    for (const absl::Status& end : ends) {
      EXPECT_EQ(end.code(), absl::StatusCode::kUnauthenticated) << end;
      EXPECT_EQ(base::ReasonOf(end), reason);
      EXPECT_EQ(end.ToString().find("key-of"), std::string::npos) << end;
    }
  }
  EXPECT_EQ(server_->store().bytes(), 0u);
  const auto answer = Ask("key-of-one", Question());
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->text(), " 37");
}

// The same picture under the same question: what one tenant has left behind is no help to another,
// and no sign of it either.
TEST_F(KeysTest, TenantsShareNeitherRecordsNorBlocks) {
  Start();
  const auto first = Ask("key-of-one", Question());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->receipt().images(0).cache(), v1::CACHE_TIER_COMPUTED);
  const size_t one_record = server_->store().bytes();
  EXPECT_GT(one_record, 0u);

  const auto other = Ask("key-of-two", Question());
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->text(), first->text());
  EXPECT_EQ(other->receipt().images(0).cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(other->usage().cached_tokens(), 0u);
  EXPECT_EQ(server_->store().bytes(), 2 * one_record);

  const auto again = Ask("key-of-one", Question());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->receipt().images(0).cache(), v1::CACHE_TIER_PREFIX_KV);
  EXPECT_GT(again->usage().cached_tokens(), 0u);
}

TEST_F(KeysTest, AHandleIsItsTenantsAlone) {
  Start();
  const absl::StatusOr<std::string> handle = Upload("key-of-one");
  ASSERT_TRUE(handle.ok()) << handle.status();
  const absl::Status stolen = Ask("key-of-two", Question(*handle)).status();
  EXPECT_EQ(stolen.code(), absl::StatusCode::kNotFound) << stolen;
  const auto answer = Ask("key-of-one", Question(*handle));
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->text(), " 37");
}

// What was uploaded with a session is read ahead for the tenant whose session it is.
TEST_F(KeysTest, ASessionOfTheSameNameIsAnothers) {
  Start();
  const absl::StatusOr<std::string> handle = Upload("key-of-one", "session");
  ASSERT_TRUE(handle.ok()) << handle.status();
  const absl::Time deadline = absl::Now() + absl::Seconds(300);
  while (server_->decode().stats().blocks_cached * 16 < 256 && absl::Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  v1::GenerateRequest request = Question();
  request.set_session("session");
  const auto other = Ask("key-of-two", request);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->receipt().images(0).cache(), v1::CACHE_TIER_COMPUTED);
  EXPECT_EQ(other->usage().cached_tokens(), 0u);
  EXPECT_EQ(other->receipt().ahead_tokens(), 0u);
  const auto own = Ask("key-of-one", request);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->receipt().images(0).cache(), v1::CACHE_TIER_PREFIX_KV);
}

TEST_F(KeysTest, WithoutKeysOnlyThisMachineIsServed) {
  LocalServerOptions options = Options();
  options.access.api_keys_file.clear();
  for (const bool http : {false, true}) {
    LocalServerOptions open = options;
    (http ? open.http.address : open.grpc_address) = "0.0.0.0:0";
    const absl::Status status = LocalServer::Start(open).status();
    EXPECT_EQ(base::ReasonOf(status), "BAD_OPTION") << status;
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr("--allow_unauthenticated_network"));
    open.access.allow_unauthenticated_network = true;
    EXPECT_TRUE(LocalServer::Start(open).ok());
  }
}

TEST_F(KeysTest, AFileOfKeysThatIsBrokenIsAnErrorAtTheStart) {
  const LocalServerOptions options = Options();
  std::ofstream(options.access.api_keys_file) << "one key-in-plain-text\n";
  const absl::Status status = LocalServer::Start(options).status();
  EXPECT_EQ(base::FieldOf(status), "api_keys_file");
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("line 1"));
}

TEST_F(KeysTest, OverTlsTheDialledServerAnswers) {
  testing::Certificates certificates;
  certificates.Sign("server", "IP:127.0.0.1");
  certificates.Sign("named", "DNS:shelf.test");
  LocalServerOptions options = Options();
  options.access.tls.cert = certificates.cert("named");
  options.access.tls.key = certificates.key("named");
  const auto server = LocalServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  DialOptions dial = {.address = absl::StrCat("127.0.0.1:", (*server)->port()),
                      .tls_ca_file = certificates.ca(),
                      .tls_server_name = "shelf.test",
                      .api_key = "key-of-one"};
  const auto info = [](const DialOptions& options, bool believed) {
    const auto channel = Dial(options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    grpc::ClientContext context;
    context.set_wait_for_ready(believed);
    Prepare(context, options.api_key);
    v1::GetModelInfoResponse response;
    return v1::GatewayService::NewStub(*channel)
        ->GetModelInfo(&context, {}, &response)
        .error_code();
  };
  EXPECT_EQ(info(dial, true), grpc::StatusCode::OK);
  dial.api_key.clear();
  EXPECT_EQ(info(dial, true), grpc::StatusCode::UNAUTHENTICATED);
  dial.tls_server_name.clear();
  EXPECT_EQ(info(dial, false), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(KeysTest, WhatCannotBeDialledIsAnError) {
  DialOptions options;
  options.api_key = "two words";
  EXPECT_EQ(base::FieldOf(Dial(options).status()), "api_key");
  EXPECT_EQ(Dial(options).status().ToString().find("two words"), std::string::npos);
  options = {};
  options.tls_ca_file = "absent.pem";
  EXPECT_EQ(base::FieldOf(Dial(options).status()), "tls_ca_file");
  options = {};
  options.tls_server_name = "a";
  EXPECT_EQ(base::FieldOf(Dial(options).status()), "tls_server_name");
}

}  // namespace
}  // namespace tessera::tools
