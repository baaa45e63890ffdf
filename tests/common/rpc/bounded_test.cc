#include "common/rpc/bounded.h"

#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/v1/gateway.pb.h"

namespace tessera::rpc {
namespace {

// As they come from the network: in pieces.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t piece = 1000) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

BoundedParse Parse(const std::string& bytes, v1::GenerateRequest& request) {
  grpc::ByteBuffer buffer = Buffer(bytes);
  return ParseBounded(buffer, request);
}
BoundedParse Parse(const std::string& bytes) {
  v1::GenerateRequest request;
  return Parse(bytes, request);
}

v1::GenerateRequest Rich() {
  v1::GenerateRequest request;
  request.set_session("s");
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->set_text("What is it?");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data(std::string(5000, '\x0b'));
  request.mutable_options()->set_temperature(0.5f);
  (*request.mutable_options()->mutable_logit_bias())[7] = -3;
  google::protobuf::UnknownFieldSet& unknown =
      *request.GetReflection()->MutableUnknownFields(&request);
  unknown.AddFixed32(1000, 1);
  unknown.AddFixed64(1001, 1);
  unknown.AddVarint(1002, 1);
  unknown.AddLengthDelimited(1003, "x");
  return request;
}

TEST(BoundedTest, AMessageIsWhatItIsElsewhere) {
  const std::string bytes = Rich().SerializeAsString();
  v1::GenerateRequest read;
  EXPECT_EQ(Parse(bytes, read), BoundedParse::kMessage);
  std::string again = read.SerializeAsString();
  EXPECT_EQ(again, bytes);
  EXPECT_EQ(Parse(""), BoundedParse::kMessage);
  for (const size_t piece : {1u, 7u}) {
    grpc::ByteBuffer buffer = Buffer(bytes, piece);
    EXPECT_EQ(ParseBounded(buffer, read), BoundedParse::kMessage);
  }
}

TEST(BoundedTest, WhatIsNoMessageIsBadWhereverItEnds) {
  const std::string bytes = Rich().SerializeAsString();
  v1::GenerateRequest whole;
  for (size_t end = 0; end<bytes.size(); end += end> 100 && end + 100 < bytes.size() ? 37 : 1) {
    const std::string cut = bytes.substr(0, end);
    const bool good = whole.ParseFromString(cut);
    EXPECT_EQ(Parse(cut), good ? BoundedParse::kMessage : BoundedParse::kBadMessage) << end;
  }
  EXPECT_EQ(Parse("\x0a\x02\xff\xfe"), BoundedParse::kBadMessage);  // a text that is no UTF-8
  EXPECT_EQ(Parse(std::string("\x00\x00", 2)), BoundedParse::kBadMessage);
  v1::GenerateRequest request = Rich();
  EXPECT_EQ(Parse("\xff\xff\xff", request), BoundedParse::kBadMessage);
  EXPECT_EQ(request.ByteSizeLong(), 0u);
}

TEST(BoundedTest, GroupsAreTakenForBad) {
  EXPECT_EQ(Parse("\xa3\x3f\xa4\x3f"), BoundedParse::kBadMessage);  // an empty one, unknown
}

TEST(BoundedTest, FieldsAreCountedAtEveryDepth) {
  // One is the message around them.
  const auto request = [](size_t inner) {
    v1::GenerateRequest request;
    v1::Message& message = *request.add_messages();
    for (size_t i = 0; i < inner; ++i) message.add_parts();
    return request.SerializeAsString();
  };
  EXPECT_EQ(Parse(request(kMaxFields - 1)), BoundedParse::kMessage);
  v1::GenerateRequest read = Rich();
  EXPECT_EQ(Parse(request(kMaxFields), read), BoundedParse::kTooManyFields);
  EXPECT_EQ(read.ByteSizeLong(), 0u);
}

TEST(BoundedTest, UnknownFieldsCount) {
  std::string bytes;
  for (size_t i = 0; i <= kMaxFields; ++i) bytes += std::string("\xc0\x3e\x01", 3);
  EXPECT_EQ(Parse(bytes), BoundedParse::kTooManyFields);
}

}  // namespace
}  // namespace tessera::rpc
