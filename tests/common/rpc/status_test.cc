#include "common/rpc/status.h"

#include <gtest/gtest.h>

#include "common/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

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

}  // namespace
}  // namespace tessera::rpc
