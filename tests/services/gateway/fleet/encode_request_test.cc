#include "services/gateway/fleet/encode_request.h"

#include <grpcpp/support/slice.h>
#include <gtest/gtest.h>

#include <algorithm>
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

// `count` bytes in pieces of 100,000, as an upload may have brought them.
std::shared_ptr<const absl::Cord> Bytes(size_t count) {
  absl::Cord bytes;
  for (size_t i = 0; i < count;) {
    std::string piece(std::min<size_t>(100'000, count - i), '\0');
    for (char& c : piece) c = static_cast<char>(i++ * 131 % 251);
    bytes.Append(std::move(piece));
  }
  return std::make_shared<const absl::Cord>(std::move(bytes));
}

TEST(EncodeRequestTest, AnOfferIsWhatProtobufWouldHaveWritten) {
  const auto bytes = Bytes(1 << 20);
  for (const size_t count :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{100'000}, bytes->size()}) {
    v1::EncodeOffer offer;
    offer.set_tenant("tenant");
    offer.set_digest(std::string(32, '\x80'));
    offer.set_size_bytes(bytes->size() + 7);
    offer.set_held_bytes(7);
    const v1::EncodeRequest parsed = Parsed(EncodeOfferRequest(offer, bytes, count));
    offer.set_first_chunk(std::string(bytes->Subcord(0, count)));
    v1::EncodeRequest expected;
    *expected.mutable_offer() = offer;
    EXPECT_EQ(parsed.SerializeAsString(), expected.SerializeAsString()) << count;
  }
}

TEST(EncodeRequestTest, AChunkIsWhatProtobufWouldHaveWritten) {
  const auto bytes = Bytes(1 << 20);
  for (const size_t begin :
       {size_t{0}, size_t{5}, size_t{99'999}, size_t{100'000}, bytes->size() - 1}) {
    for (const size_t count : {size_t{1}, bytes->size() - begin}) {
      EXPECT_EQ(Parsed(EncodeChunkRequest(bytes, begin, count)).chunk(),
                bytes->Subcord(begin, count));
    }
  }
}

TEST(EncodeRequestTest, APictureIsSentFromWhereItLiesAndKeptUntilThen) {
  auto bytes = Bytes(1000);
  const std::weak_ptr<const absl::Cord> life = bytes;
  const char* const data = bytes->TryFlat()->data();
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
