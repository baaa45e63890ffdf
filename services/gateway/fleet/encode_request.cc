#include "services/gateway/fleet/encode_request.h"

#include <cstdint>

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

grpc::Slice Borrow(const std::shared_ptr<const std::string>& bytes, size_t begin, size_t count) {
  using Owner = std::shared_ptr<const std::string>;
  return grpc::Slice(
      const_cast<char*>(bytes->data()) + begin, count,  // gRPC only reads it
      [](void* owner) { delete static_cast<Owner*>(owner); }, new Owner(bytes));
}

grpc::ByteBuffer Message(const std::string& head, const std::shared_ptr<const std::string>& bytes,
                         size_t begin, size_t count) {
  const grpc::Slice first(head);
  if (count == 0) return grpc::ByteBuffer(&first, 1);
  const grpc::Slice slices[] = {first, Borrow(bytes, begin, count)};
  return grpc::ByteBuffer(slices, 2);
}

}  // namespace

grpc::ByteBuffer EncodeOfferRequest(const v1::EncodeOffer& offer,
                                    const std::shared_ptr<const std::string>& bytes, size_t count) {
  std::string inner = offer.SerializeAsString();
  if (count > 0) AppendHead(v1::EncodeOffer::kFirstChunkFieldNumber, count, inner);
  std::string head;
  AppendHead(v1::EncodeRequest::kOfferFieldNumber, inner.size() + count, head);
  return Message(head + inner, bytes, 0, count);
}

grpc::ByteBuffer EncodeChunkRequest(const std::shared_ptr<const std::string>& bytes, size_t begin,
                                    size_t count) {
  std::string head;
  AppendHead(v1::EncodeRequest::kChunkFieldNumber, count, head);
  return Message(head, bytes, begin, count);
}

}  // namespace tessera::gateway
