#include "common/rpc/bounded.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::rpc {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::io::CodedInputStream;

// Counts fields without keeping any.
class Counter {
 public:
  explicit Counter(CodedInputStream& in) : in_(in) {}

  // Of types that hold themselves nowhere, so the depth is theirs.
  BoundedParse Count(const google::protobuf::Descriptor& type) {
    while (const uint32_t tag = in_.ReadTag()) {
      if (++fields_ > kMaxFields) return BoundedParse::kTooManyFields;
      const BoundedParse field = CountField(type, tag);
      if (field != BoundedParse::kMessage) return field;
    }
    return in_.ConsumedEntireMessage() ? BoundedParse::kMessage : BoundedParse::kBadMessage;
  }

 private:
  BoundedParse CountField(const google::protobuf::Descriptor& type, uint32_t tag) {
    uint64_t number = 0;
    int bytes = 0;
    switch (tag & 7) {  // https://protobuf.dev/programming-guides/encoding
      case 0:
        return Verdict(in_.ReadVarint64(&number));
      case 1:
        return Verdict(in_.Skip(8));
      case 5:
        return Verdict(in_.Skip(4));
      case 2:
        break;
      default:  // groups: there are none in messages here
        return BoundedParse::kBadMessage;
    }
    if (!in_.ReadVarintSizeAsInt(&bytes)) return BoundedParse::kBadMessage;
    const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
    if (field == nullptr || field->type() != FieldDescriptor::TYPE_MESSAGE) {
      return Verdict(in_.Skip(bytes));
    }
    const CodedInputStream::Limit limit = in_.PushLimit(bytes);
    const BoundedParse parsed = Count(*field->message_type());
    in_.PopLimit(limit);
    return parsed;
  }
  static BoundedParse Verdict(bool read) {
    return read ? BoundedParse::kMessage : BoundedParse::kBadMessage;
  }

  CodedInputStream& in_;
  size_t fields_ = 0;
};

BoundedParse CountFields(grpc::ByteBuffer& bytes, const google::protobuf::Descriptor& type) {
  grpc::ProtoBufferReader reader(&bytes);
  if (!reader.status().ok()) return BoundedParse::kBadMessage;
  CodedInputStream in(&reader);
  return Counter(in).Count(type);
}

}  // namespace

BoundedParse ParseBounded(grpc::ByteBuffer& bytes, google::protobuf::Message& message) {
  message.Clear();
  const BoundedParse counted = CountFields(bytes, *message.GetDescriptor());
  if (counted != BoundedParse::kMessage) return counted;
  grpc::ProtoBufferReader reader(&bytes);
  if (reader.status().ok() && message.ParseFromZeroCopyStream(&reader)) return counted;
  message.Clear();
  return BoundedParse::kBadMessage;
}

absl::Status TooManyFields() {
  return base::Error(absl::StatusCode::kInvalidArgument, "BAD_PARAMETER",
                     absl::StrCat("the request has more than ", kMaxFields,
                                  " fields; write texts that follow each other as one"));
}

}  // namespace tessera::rpc
