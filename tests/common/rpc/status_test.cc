#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/mutex.h"
#include "common/base/utf8.h"
#include "common/rpc/server.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tessera/v1/gateway.grpc.pb.h"

namespace tessera::rpc {
namespace {

TEST(StatusTest, OkIsOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
}

TEST(StatusTest, EverythingAttachedComesBack) {
  absl::Status status = base::BadField("options.top_p", "BAD_PARAMETER", "top_p is 7");
  status = base::WithRetry(status, absl::Milliseconds(1500));
  status = base::WithResource(status, "model", "gpt");
  status = base::WithFact(status, "stage", "encode");
  const absl::Status back = FromGrpc(ToGrpc(status));
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), "top_p is 7");
  EXPECT_EQ(base::ReasonOf(back), "BAD_PARAMETER");
  EXPECT_EQ(base::FieldOf(back), "options.top_p");
  EXPECT_EQ(base::RetryOf(back), absl::Milliseconds(1500));
  EXPECT_EQ(base::ResourceOf(back), std::make_pair(std::string("model"), std::string("gpt")));
  EXPECT_EQ(base::FactsOf(back).at("stage"), "encode");
}

TEST(StatusTest, DetailsAreTheCodeAndMessageOfTheStatus) {
  const grpc::Status grpc_status = ToGrpc(base::Error(absl::StatusCode::kNotFound, "GONE", "gone"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(grpc_status.error_details()));
  EXPECT_EQ(details.code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(details.message(), "gone");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.ErrorInfo");
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.domain(), "tessera");
}

TEST(StatusTest, WhatIsCutWithinACharacterCanStillBeParsed) {
  const std::string cut = "caf\xc3";
  absl::Status status = base::BadField(cut, "GONE", "no " + cut);
  status = base::WithFact(base::WithResource(status, "model", cut), "stage", cut);
  const grpc::Status grpc_status = ToGrpc(status);
  EXPECT_EQ(grpc_status.error_message(), "no caf\ufffd");
  const absl::Status back = FromGrpc(grpc_status);
  EXPECT_EQ(base::ReasonOf(back), "GONE");
  EXPECT_EQ(base::FieldOf(back), "caf\ufffd");
  EXPECT_EQ(base::ResourceOf(back).second, "caf\ufffd");
  EXPECT_EQ(base::FactsOf(back).at("stage"), "caf\ufffd");
}

TEST(StatusTest, AStatusOfGrpcItselfKeepsCodeAndMessage) {
  const absl::Status plain = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no route"));
  EXPECT_EQ(plain.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(plain.message(), "no route");
  const absl::Status odd =
      FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "x", "these bytes are no message \xff"));
  EXPECT_EQ(odd.code(), absl::StatusCode::kInternal);
}

// Errors as long, as foreign and with as many fields as anybody's input can make them.
class AnyError {
 public:
  explicit AnyError(uint32_t seed) : random_(seed) {}

  absl::Status Next() {
    absl::Status status =
        base::Error(static_cast<absl::StatusCode>(1 + random_() % 16),
                    absl::StrCat("REASON_", std::string(random_() % 40, 'X')), Text());
    if (random_() % 2 == 0) status = base::WithField(std::move(status), Text());
    if (random_() % 2 == 0) status = base::WithResource(std::move(status), "model", Text());
    if (random_() % 2 == 0) status = base::WithRetry(std::move(status), absl::Seconds(1));
    for (uint32_t facts = random_() % 12; facts > 0; --facts) {
      status = base::WithFact(std::move(status), absl::StrCat("fact", facts), Text());
    }
    return status;
  }

 private:
  std::string Text() {
    static constexpr const char* kPieces[] = {"a",      " ",          "%",    "\n",      "\u00e9",
                                              "\u6c34", "\U0001f600", "\xff", "\xe6\xb0"};
    const size_t most = size_t{1} << random_() % 14;
    const uint32_t kinds = 1 + random_() % std::size(kPieces);
    std::string text;
    while (text.size() < most) text += kPieces[random_() % kinds];
    return text;
  }

  std::mt19937 random_;
};

bool IsUtf8(absl::string_view text) { return base::ToUtf8(text) == text; }

TEST(StatusTest, EveryErrorFitsAndKeepsItsCodeAndReason) {
  AnyError errors(1);
  for (int i = 0; i < 10'000; ++i) {
    const absl::Status status = errors.Next();
    const grpc::Status sent = ToGrpc(status);
    ASSERT_LE(EncodedErrorBytes(sent), kMostErrorBytes) << i;
    ASSERT_TRUE(IsUtf8(sent.error_message())) << i;
    const absl::Status back = FromGrpc(sent);
    ASSERT_EQ(back.code(), status.code()) << i;
    ASSERT_EQ(base::ReasonOf(back), base::ReasonOf(status)) << i;
    ASSERT_EQ(base::RetryOf(back), base::RetryOf(status)) << i;
    ASSERT_TRUE(IsUtf8(base::FieldOf(back))) << i;
    // The next hop sends what it was sent.
    ASSERT_EQ(FromGrpc(ToGrpc(back)), back) << i;
  }
}

TEST(StatusTest, ShortErrorsAreSentWhole) {
  const std::string message = std::string(1000, 'm'), value = std::string(200, 'v');
  const absl::Status status = base::WithFact(base::BadField("f", "R", message), "fact", value);
  EXPECT_EQ(FromGrpc(ToGrpc(status)).message(), message);
  EXPECT_EQ(base::FactsOf(FromGrpc(ToGrpc(status))).at("fact"), value);
}

// Fails each call with another error.
class FailingService final : public v1::GatewayService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const v1::GetModelInfoRequest*,
                                         v1::GetModelInfoResponse*) override {
    auto* reactor = context->DefaultReactor();
    base::MutexLock lock(mutex_);
    reactor->Finish(ToGrpc(error_));
    return reactor;
  }
  void Set(const absl::Status& error) {
    base::MutexLock lock(mutex_);
    error_ = error;
  }

 private:
  base::Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

TEST(StatusTest, NoErrorLosesTheConnection) {
  FailingService service;
  const auto server = Server::Start({.address = ""}, {&service}, {});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::GatewayService::NewStub((*server)->InProcessChannel());
  AnyError errors(2);
  for (int i = 0; i < 1'000; ++i) {
    const absl::Status error = errors.Next();
    service.Set(error);
    grpc::ClientContext context;
    v1::GetModelInfoResponse response;
    const absl::Status back = FromGrpc(stub->GetModelInfo(&context, {}, &response));
    ASSERT_EQ(back.code(), error.code()) << back;
    ASSERT_EQ(base::ReasonOf(back), base::ReasonOf(error)) << back;
  }
}

}  // namespace
}  // namespace tessera::rpc
