#include "services/vision/get_record_reactor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/error.h"
#include "common/rpc/status.h"
#include "common/rpc/trace/request_end.h"

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

GetRecordReactor::GetRecordReactor(const VisionServiceDeps& deps, std::atomic<int>& under_way,
                                   grpc::CallbackServerContext& context,
                                   const v1::GetRecordRequest& request)
    : token_(*deps.calls),
      deps_(deps),
      under_way_(under_way),
      wire_(context),
      arrival_(deps.clock.Now()),
      context_(
          rpc::AcceptRequest(context, arrival_, absl::InfiniteDuration(), deps.spans != nullptr)),
      key_(request.key()) {
  if (++under_way_ > kMostUnderWay || !deps_.records.TryPush([this] { Load(); })) End(Busy());
}

void GetRecordReactor::Load() {
  if (wire_.IsCancelled()) return End(CallerGone());
  absl::StatusOr<store::EmbeddingKey> key = store::EmbeddingKey::FromBytes(key_);
  if (!key.ok()) return End(base::WithField(key.status(), "key"));
  absl::StatusOr<std::optional<store::RecordPtr>> found = deps_.local.Get(*key);
  if (!found.ok() || !found->has_value()) {
    return End(base::WithResource(
        base::Error(absl::StatusCode::kNotFound, "RECORD_GONE", "this replica has no such record"),
        "embedding_record", key->hex()));
  }
  absl::StatusOr<std::string> bytes = deps_.codec.Encode(***found);
  if (!bytes.ok()) return End(bytes.status());
  record_ = *std::move(bytes);
  response_.set_record_bytes(record_.size());
  WriteNext();
}

void GetRecordReactor::OnWriteDone(bool ok) {
  if (!ok) return End(CallerGone());
  if (sent_bytes_ == record_.size()) return End(absl::OkStatus());
  response_.Clear();
  WriteNext();
}

void GetRecordReactor::WriteNext() {
  const size_t count = std::min(kChunkBytes, record_.size() - sent_bytes_);
  response_.set_chunk(record_.data() + sent_bytes_, count);
  sent_bytes_ += count;
  StartWrite(&response_);
}

void GetRecordReactor::End(absl::Status status) {
  status_ = std::move(status);
  Finish(rpc::ToGrpc(status_));
}

void GetRecordReactor::OnDone() {
  rpc::TellEnd({.service = "vision",
                .method = "GetRecord",
                .protocol = "grpc",
                .request = context_,
                .start = arrival_,
                .end = deps_.clock.Now(),
                .status = status_,
                .facts = {{"record_bytes", record_.size()}}},
               deps_.spans);
  delete this;
}

}  // namespace tessera::vision
