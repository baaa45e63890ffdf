// The request as gRPC hands it over against the message that protobuf reads from the same bytes.
#include "services/vision/encode_request.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/allocation_count.h"

namespace tessera::vision {
namespace {

using google::protobuf::util::MessageDifferencer;

// Of slices of so many bytes each.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t slice_bytes) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += slice_bytes) {
    slices.emplace_back(bytes.substr(at, slice_bytes));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

void ExpectAsProtobuf(const std::string& bytes, size_t slice_bytes) {
  v1::EncodeRequest expected;
  const bool good = expected.ParseFromString(bytes);
  EncodeRequest request;
  grpc::ByteBuffer buffer = Buffer(bytes, slice_bytes);
  EXPECT_EQ(request.Parse(buffer).ok(), good);
  EXPECT_EQ(request.bad(), !good);
  std::string picture;
  if (good && expected.has_chunk()) expected.mutable_chunk()->swap(picture);
  if (good && expected.has_offer()) expected.mutable_offer()->mutable_first_chunk()->swap(picture);
  if (!good) expected.Clear();
  EXPECT_EQ(absl::StrJoin(request.picture(), ""), picture);
  EXPECT_EQ(request.picture_bytes(), picture.size());
  EXPECT_TRUE(MessageDifferencer::Equals(request.message(), expected))
      << request.message().ShortDebugString() << " for " << expected.ShortDebugString();
}

v1::EncodeRequest Offer(size_t first_bytes) {
  v1::EncodeRequest request;
  v1::EncodeOffer& offer = *request.mutable_offer();
  offer.set_tenant("tenant");
  offer.set_digest(std::string(32, 'd'));
  offer.set_size_bytes(1 << 20);
  offer.set_first_chunk(std::string(first_bytes, 'f'));
  offer.set_held_bytes(77);
  return request;
}

v1::EncodeRequest Chunk(size_t bytes) {
  v1::EncodeRequest request;
  std::string& chunk = *request.mutable_chunk();
  for (size_t i = 0; i < bytes; ++i) chunk.push_back(static_cast<char>(i * 7));
  return request;
}

TEST(EncodeRequestTest, IsTheMessageThatProtobufReadsHoweverItIsCut) {
  for (const size_t slice : {1, 3, 16, 100, 1 << 20}) {
    for (const size_t bytes : {0, 1, 15, 300, 5000}) {
      ExpectAsProtobuf(Offer(bytes).SerializeAsString(), slice);
      ExpectAsProtobuf(Chunk(bytes).SerializeAsString(), slice);
    }
    ExpectAsProtobuf("", slice);
  }
}

// Fields may come more than once, and in any order.
TEST(EncodeRequestTest, TheLastOfSeveralCountsAndOffersAreMerged) {
  const std::string offer = Offer(20).SerializeAsString(), other = Offer(0).SerializeAsString(),
                    chunk = Chunk(30).SerializeAsString();
  for (const std::string& bytes :
       {offer + chunk, chunk + offer, chunk + other, offer + other, other + offer, chunk + chunk,
        offer + chunk + other, chunk + offer + other}) {
    ExpectAsProtobuf(bytes, 16);
  }
}

TEST(EncodeRequestTest, UnknownFieldsAreKeptAsProtobufKeepsThem) {
  // Numbers 9 (varint), 10 (fixed64), 11 (bytes), 12 (fixed32), beside and inside an offer.
  const std::string unknown =
      absl::StrCat("\x48\x05", "\x51", "12345678", "\x5A\x03", "abc", "\x65", "1234");
  ExpectAsProtobuf(unknown + Offer(20).SerializeAsString() + unknown, 5);
  const std::string inside = Offer(20).offer().SerializeAsString() + unknown;
  ExpectAsProtobuf(absl::StrCat("\x0A", std::string(1, static_cast<char>(inside.size())), inside),
                   5);
}

TEST(EncodeRequestTest, BrokenMessagesAreBadAsForProtobuf) {
  const std::string offer = Offer(20).SerializeAsString(), chunk = Chunk(30).SerializeAsString();
  for (size_t cut = 1; cut < offer.size(); ++cut) ExpectAsProtobuf(offer.substr(0, cut), 7);
  for (size_t cut = 1; cut < chunk.size(); ++cut) ExpectAsProtobuf(chunk.substr(0, cut), 7);
  v1::EncodeRequest text = Offer(0);
  std::string bytes = text.SerializeAsString();
  bytes[bytes.find("tenant")] = '\xFF';  // no UTF-8
  ExpectAsProtobuf(bytes, 7);
  std::mt19937 random(20261);
  for (int i = 0; i < 20000; ++i) {
    std::string broken = i % 2 == 0 ? offer : chunk;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      broken[random() % broken.size()] = static_cast<char>(random());
    }
    EncodeRequest request;
    grpc::ByteBuffer buffer = Buffer(broken, 1 + random() % 40);
    v1::EncodeRequest expected;
    // Groups, which no message here has, are refused; all else is as for protobuf.
    EXPECT_TRUE(!request.Parse(buffer).ok() || expected.ParseFromString(broken));
  }
}

// An offer that claims 2^31 - 64 bytes, whose tenant claims 64 less.
TEST(EncodeRequestTest, ALengthThatLiesReservesNothing) {
  const std::string lie = "\x0A\xC0\xFF\xFF\xFF\x07\x0A\x80\xFF\xFF\xFF\x07";
  grpc::ByteBuffer buffer = Buffer(lie, lie.size());
  EncodeRequest request;
  testing::LargestAllocation();
  EXPECT_FALSE(request.Parse(buffer).ok());
  EXPECT_LE(testing::LargestAllocation(), 1u << 16);
  EXPECT_TRUE(request.bad());
}

TEST(EncodeRequestTest, ClearMakesItEmptyAndGood) {
  EncodeRequest request;
  grpc::ByteBuffer bad = Buffer("\xFF", 1), good = Buffer(Chunk(30).SerializeAsString(), 9);
  EXPECT_FALSE(request.Parse(bad).ok());
  EXPECT_TRUE(request.bad());
  EXPECT_TRUE(request.Parse(good).ok());
  EXPECT_FALSE(request.bad());
  request.Clear();
  EXPECT_TRUE(request.picture().empty());
  EXPECT_FALSE(request.message().has_chunk());
}

}  // namespace
}  // namespace tessera::vision
