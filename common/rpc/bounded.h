#pragma once

#include <google/protobuf/message.h>
#include <grpcpp/impl/serialization_traits.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"

// gRPC parses a message before any code of ours sees it, or who sends it, and a field of two bytes
// may become an object of a hundred: a message within its limit of bytes would take gigabytes. So
// methods that strangers reach take Bounded messages, whose fields are counted on the wire first.
namespace tessera::rpc {

// Of a message, at every depth, unknown ones too.
constexpr size_t kMaxFields = 1 << 17;

// Of gRPC's handlers, in the place of Message. Threads, life: as that.
template <typename Message>
struct Bounded {
  // gRPC hands requests over as const, though nobody but their handler looks at them. Once.
  Message Take() const { return std::move(message); }

  mutable Message message;
  bool too_many_fields = false;  // and `message` is empty
};

enum class BoundedParse { kMessage, kBadMessage, kTooManyFields };

// From the bytes of one message; `message` is empty where that fails. REQUIRES: its type holds no
// field of its own type, however deep.
BoundedParse ParseBounded(grpc::ByteBuffer& bytes, google::protobuf::Message& message);

// What the sender of too many fields is told: INVALID_ARGUMENT, BAD_PARAMETER.
absl::Status TooManyFields();

}  // namespace tessera::rpc

namespace grpc {

template <typename Message>
class SerializationTraits<tessera::rpc::Bounded<Message>, void> {
 public:
  // Not OK: it is no such message (bad_message.h).
  static Status Deserialize(ByteBuffer* bytes, tessera::rpc::Bounded<Message>* bounded) {
    const auto parsed = tessera::rpc::ParseBounded(*bytes, bounded->message);
    bytes->Clear();  // gRPC counts on it: it forgets the buffer
    bounded->too_many_fields = parsed == tessera::rpc::BoundedParse::kTooManyFields;
    const bool bad = parsed == tessera::rpc::BoundedParse::kBadMessage;
    return bad ? Status(StatusCode::INTERNAL, "") : Status::OK;
  }
};

}  // namespace grpc
