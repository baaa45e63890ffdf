#pragma once

#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <vector>

#include "absl/strings/string_view.h"
#include "tessera/v1/vision.pb.h"

namespace tessera::vision {

// A v1::EncodeRequest as it came, the picture's bytes where gRPC put them: they are copied once,
// from there to their place in the picture. In the place of the message in gRPC's handlers.
class EncodeRequest {
 public:
  // Of `bytes`, which are taken. Not OK: they are no such message.
  grpc::Status Parse(grpc::ByteBuffer& bytes);
  // To be called before each read: makes it empty.
  void Clear();
  // After a read that failed: there was a message, and it could not be parsed.
  bool bad() const { return bad_; }

  // Without chunk and first_chunk, which are empty in it.
  const v1::EncodeRequest& message() const { return message_; }
  // The pieces of chunk or first_chunk, in order; valid until Clear.
  const std::vector<absl::string_view>& picture() const { return picture_; }
  size_t picture_bytes() const;

 private:
  bool Split();

  v1::EncodeRequest message_;
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> picture_;  // in slices_
  bool bad_ = false;
};

}  // namespace tessera::vision

namespace grpc {

template <>
class SerializationTraits<tessera::vision::EncodeRequest, void> {
 public:
  static Status Deserialize(ByteBuffer* bytes, tessera::vision::EncodeRequest* request) {
    const Status status = request->Parse(*bytes);
    bytes->Clear();  // gRPC counts on it: it forgets the buffer
    return status;
  }
};

}  // namespace grpc
