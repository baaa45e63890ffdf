#include "services/gateway/fleet/encode_request.h"

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::gateway {
namespace {

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Of a field that has a length (wire type 2 of protobuf.dev/programming-guides/encoding).
void AppendHead(int field, uint64_t length, std::string& out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(length, out);
}

using Bytes = std::shared_ptr<const absl::Cord>;

grpc::Slice Borrow(const Bytes& bytes, absl::string_view piece) {
  return grpc::Slice(
      const_cast<char*>(piece.data()), piece.size(),  // gRPC only reads it
      [](void* owner) { delete static_cast<Bytes*>(owner); }, new Bytes(bytes));
}

grpc::ByteBuffer Message(const std::string& head, const Bytes& bytes, size_t begin, size_t count) {
  std::vector<grpc::Slice> slices{grpc::Slice(head)};
  if (count > 0) {
    absl::Cord::CharIterator at = bytes->char_begin();
    absl::Cord::Advance(&at, begin);
    for (size_t left = count; left > 0;) {
      const absl::string_view piece = absl::Cord::ChunkRemaining(at).substr(0, left);
      slices.push_back(Borrow(bytes, piece));
      absl::Cord::Advance(&at, piece.size());
      left -= piece.size();
    }
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace

grpc::ByteBuffer EncodeOfferRequest(const v1::EncodeOffer& offer, const Bytes& bytes,
                                    size_t count) {
  std::string inner = offer.SerializeAsString();
  if (count > 0) AppendHead(v1::EncodeOffer::kFirstChunkFieldNumber, count, inner);
  std::string head;
  AppendHead(v1::EncodeRequest::kOfferFieldNumber, inner.size() + count, head);
  return Message(head + inner, bytes, 0, count);
}

grpc::ByteBuffer EncodeChunkRequest(const Bytes& bytes, size_t begin, size_t count) {
  std::string head;
  AppendHead(v1::EncodeRequest::kChunkFieldNumber, count, head);
  return Message(head, bytes, begin, count);
}

}  // namespace tessera::gateway
