#include "services/vision/get_record_reactor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/rpc/status.h"

namespace tessera::vision {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr int kMostUnderWay = 32;

absl::Status Busy() {
  return base::WithRetry(base::Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                     "too many records are being read here"),
                         absl::Milliseconds(100));
}

}  // namespace

GetRecordReactor::GetRecordReactor(const VisionServiceParts& parts, std::atomic<int>& under_way,
                                   const v1::GetRecordRequest& request)
    : parts_(parts), under_way_(under_way), key_(request.key()) {
  if (++under_way_ > kMostUnderWay || !parts_.lookups.TryPush([this] { Load(); })) Fail(Busy());
}

void GetRecordReactor::Load() {
  absl::StatusOr<store::EmbeddingKey> key = store::EmbeddingKey::FromBytes(key_);
  if (!key.ok()) return Fail(base::WithField(key.status(), "key"));
  absl::StatusOr<std::optional<store::RecordPtr>> found = parts_.local.Get(*key);
  if (!found.ok() || !found->has_value()) {
    return Fail(base::WithResource(
        base::Error(absl::StatusCode::kNotFound, "RECORD_GONE", "this replica has no such record"),
        "embedding_record", key->hex()));
  }
  absl::StatusOr<std::string> bytes = parts_.codec.Encode(***found);
  if (!bytes.ok()) return Fail(bytes.status());
  record_ = *std::move(bytes);
  response_.set_record_bytes(record_.size());
  WriteNext();
}

void GetRecordReactor::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status::CANCELLED);
  if (sent_ == record_.size()) return Finish(grpc::Status::OK);
  response_.Clear();
  WriteNext();
}

void GetRecordReactor::WriteNext() {
  const size_t count = std::min(kChunkBytes, record_.size() - sent_);
  response_.set_chunk(record_.data() + sent_, count);
  sent_ += count;
  StartWrite(&response_);
}

void GetRecordReactor::Fail(const absl::Status& status) { Finish(rpc::ToGrpc(status)); }

}  // namespace tessera::vision
