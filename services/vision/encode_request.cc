#include "services/vision/encode_request.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

namespace tessera::vision {
namespace {

using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;
using google::protobuf::io::StringOutputStream;
using google::protobuf::io::ZeroCopyInputStream;

// https://protobuf.dev/programming-guides/encoding
constexpr uint32_t Tag(int field, uint32_t type) {
  return static_cast<uint32_t>(field) << 3 | type;
}
constexpr uint32_t kBytes = 2;
constexpr uint32_t kOffer = Tag(v1::EncodeRequest::kOfferFieldNumber, kBytes);
constexpr uint32_t kChunk = Tag(v1::EncodeRequest::kChunkFieldNumber, kBytes);
constexpr uint32_t kFirstChunk = Tag(v1::EncodeOffer::kFirstChunkFieldNumber, kBytes);

// Slices, one behind the other.
class SliceStream final : public ZeroCopyInputStream {
 public:
  explicit SliceStream(const std::vector<grpc::Slice>& slices) : slices_(slices) {}

  bool Next(const void** data, int* size) override {
    if (next_ == slices_.size()) return false;
    const grpc::Slice& slice = slices_[next_++];
    *data = slice.begin() + offset_;
    *size = static_cast<int>(slice.size() - offset_);
    bytes_ += *size;
    offset_ = 0;
    return true;
  }
  void BackUp(int count) override {
    offset_ = slices_[--next_].size() - static_cast<size_t>(count);
    bytes_ -= count;
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    for (int size = 0; count > 0; count -= size) {
      if (!Next(&data, &size)) return false;
      if (size > count) {
        BackUp(size - count);
        size = count;
      }
    }
    return true;
  }
  int64_t ByteCount() const override { return bytes_; }

 private:
  const std::vector<grpc::Slice>& slices_;
  size_t next_ = 0;
  size_t offset_ = 0;  // in the next one
  int64_t bytes_ = 0;
};

// Separates the bytes of the picture from the rest of a message.
class Splitter {
 public:
  Splitter(CodedInputStream& in, std::vector<absl::string_view>& picture)
      : in_(in), picture_(picture) {}

  // Writes the message to `rest` without what is in chunk and first_chunk. False: it is broken.
  bool SplitRequest(std::string& rest) {
    StringOutputStream stream(&rest);
    CodedOutputStream out(&stream);
    while (const uint32_t tag = in_.ReadTag()) {
      if (!SplitField(tag, out)) return false;
    }
    return in_.ConsumedEntireMessage();
  }

 private:
  // The last of several offers and chunks counts, as in any oneof; offers that follow each other
  // are one.
  bool SplitField(uint32_t tag, CodedOutputStream& out) {
    if (tag == kChunk) {
      last_was_chunk_ = true;
      out.WriteTag(tag);
      out.WriteVarint32(0);
      return TakePicture();
    }
    if (tag != kOffer) return CopyField(tag, out);
    if (last_was_chunk_) picture_.clear();
    last_was_chunk_ = false;
    int bytes = 0;
    if (!in_.ReadVarintSizeAsInt(&bytes)) return false;
    std::string offer;
    const CodedInputStream::Limit limit = in_.PushLimit(bytes);
    if (!SplitOffer(offer) || in_.BytesUntilLimit() != 0) return false;
    in_.PopLimit(limit);
    out.WriteTag(tag);
    out.WriteVarint32(static_cast<uint32_t>(offer.size()));
    out.WriteString(offer);
    return true;
  }
  bool SplitOffer(std::string& rest) {
    StringOutputStream stream(&rest);
    CodedOutputStream out(&stream);
    while (const uint32_t tag = in_.ReadTag()) {
      if (!(tag == kFirstChunk ? TakePicture() : CopyField(tag, out))) return false;
    }
    return in_.ConsumedEntireMessage();
  }
  bool TakePicture() {
    picture_.clear();
    int left = 0;
    if (!in_.ReadVarintSizeAsInt(&left)) return false;
    while (left > 0) {
      const void* data = nullptr;
      int size = 0;
      if (!in_.GetDirectBufferPointer(&data, &size)) return false;
      size = std::min(size, left);
      picture_.emplace_back(static_cast<const char*>(data), static_cast<size_t>(size));
      if (!in_.Skip(size)) return false;
      left -= size;
    }
    return true;
  }
  bool CopyField(uint32_t tag, CodedOutputStream& out) {
    uint64_t number = 0;
    uint32_t fixed = 0;
    std::string bytes;
    int size = 0;
    out.WriteTag(tag);
    switch (tag & 7) {
      case 0:
        if (!in_.ReadVarint64(&number)) return false;
        out.WriteVarint64(number);
        return true;
      case 1:
        if (!in_.ReadLittleEndian64(&number)) return false;
        out.WriteLittleEndian64(number);
        return true;
      case 5:
        if (!in_.ReadLittleEndian32(&fixed)) return false;
        out.WriteLittleEndian32(fixed);
        return true;
      case kBytes:
        if (!in_.ReadVarintSizeAsInt(&size) || !in_.ReadString(&bytes, size)) return false;
        out.WriteVarint32(static_cast<uint32_t>(size));
        out.WriteString(bytes);
        return true;
      default:  // groups: there are none in messages here
        return false;
    }
  }

  CodedInputStream& in_;
  std::vector<absl::string_view>& picture_;
  bool last_was_chunk_ = false;
};

}  // namespace

void EncodeRequest::Clear() {
  message_.Clear();
  picture_.clear();
  slices_.clear();
  bad_ = false;
}

size_t EncodeRequest::picture_bytes() const {
  size_t bytes = 0;
  for (const absl::string_view piece : picture_) bytes += piece.size();
  return bytes;
}

grpc::Status EncodeRequest::Parse(grpc::ByteBuffer& bytes) {
  Clear();
  if (bytes.Dump(&slices_).ok() && Split()) return grpc::Status::OK;
  Clear();
  bad_ = true;
  return grpc::Status(grpc::StatusCode::INTERNAL, "");
}

bool EncodeRequest::Split() {
  SliceStream stream(slices_);
  CodedInputStream in(&stream);
  size_t total = 0;
  for (const grpc::Slice& slice : slices_) total += slice.size();
  if (total >= std::numeric_limits<int>::max()) return false;
  // What a length claims beyond the message is not reserved. One more than there is: at the very
  // limit the end would look like a message that is too long.
  in.SetTotalBytesLimit(static_cast<int>(total) + 1);
  std::string rest;
  return Splitter(in, picture_).SplitRequest(rest) && message_.ParseFromString(rest);
}

}  // namespace tessera::vision
