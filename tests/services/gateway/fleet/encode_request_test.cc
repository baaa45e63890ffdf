#include "services/gateway/fleet/encode_request.h"

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace tessera::gateway {
namespace {

std::vector<grpc::Slice> SlicesOf(const grpc::ByteBuffer& request) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(request.Dump(&slices).ok());
  return slices;
}

v1::EncodeRequest Parsed(const grpc::ByteBuffer& request) {
  std::string wire;
  for (const grpc::Slice& slice : SlicesOf(request)) {
    wire.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  v1::EncodeRequest parsed;
  EXPECT_TRUE(parsed.ParseFromString(wire));
  return parsed;
}

std::shared_ptr<const std::string> Bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i * 131 % 251);
  return std::make_shared<const std::string>(std::move(bytes));
}

TEST(EncodeRequestTest, AnOfferIsWhatProtobufWouldHaveWritten) {
  const auto bytes = Bytes(1 << 20);
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{16'384}, bytes->size()}) {
    v1::EncodeOffer offer;
    offer.set_tenant("tenant");
    offer.set_digest(std::string(32, '\x80'));
    offer.set_size_bytes(bytes->size() + 7);
    offer.set_held_bytes(7);
    const v1::EncodeRequest parsed = Parsed(EncodeOfferRequest(offer, bytes, count));
    offer.set_first_chunk(bytes->substr(0, count));
    v1::EncodeRequest expected;
    *expected.mutable_offer() = offer;
    EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString()) << count;
  }
}

TEST(EncodeRequestTest, AChunkIsWhatProtobufWouldHaveWritten) {
  const auto bytes = Bytes(1 << 20);
  for (const size_t begin : {size_t{0}, size_t{5}, bytes->size() - 1}) {
    for (const size_t count : {size_t{1}, bytes->size() - begin}) {
      EXPECT_EQ(Parsed(EncodeChunkRequest(bytes, begin, count)).chunk(),
                bytes->substr(begin, count));
    }
  }
}

TEST(EncodeRequestTest, APictureIsSentFromWhereItLiesAndKeptUntilThen) {
  auto bytes = Bytes(1000);
  const std::weak_ptr<const std::string> life = bytes;
  const char* const data = bytes->data();
  grpc::ByteBuffer offer = EncodeOfferRequest({}, bytes, 600);
  grpc::ByteBuffer chunk = EncodeChunkRequest(bytes, 600, 400);
  bytes = nullptr;
  EXPECT_EQ(reinterpret_cast<const char*>(SlicesOf(offer).at(1).begin()), data);
  EXPECT_EQ(reinterpret_cast<const char*>(SlicesOf(chunk).at(1).begin()), data + 600);
  offer.Clear();
  EXPECT_FALSE(life.expired());
  chunk.Clear();
  EXPECT_TRUE(life.expired());
}

}  // namespace
}  // namespace tessera::gateway
