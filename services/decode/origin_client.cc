#include "services/decode/origin_client.h"

#include <algorithm>
#include <stop_token>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/request.h"
#include "common/rpc/status.h"

namespace tessera::decode {
namespace {

// `asker` as it goes with a call that has until `due` at most.
rpc::RequestContext ToForward(const ReadContext& asker, absl::Time due) {
  return {asker.name.request_id,
          rpc::ParseTraceparent(asker.name.traceparent).value_or(rpc::TraceContext()),
          std::min(asker.deadline, due)};
}

}  // namespace

OriginClient::OriginClient(
    OriginOptions options,
    std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> connect,
    store::RecordCodec codec, base::Clock& clock)
    : options_(std::move(options)),
      connect_(std::move(connect)),
      codec_(std::move(codec)),
      clock_(clock) {}

bool OriginClient::Knows(const std::string& origin) const {
  return std::any_of(options_.addresses.begin(), options_.addresses.end(),
                     [&origin](const std::string& address) {
                       if (!absl::StartsWith(address, "*:")) return address == origin;
                       return absl::EndsWith(origin, address.substr(1));
                     });
}

void OriginClient::TellUnknown(const std::string& origin) {
  constexpr size_t kMostOrigins = 32, kMostBytes = 300;  // a host's name has up to 253
  const std::string name = origin.substr(0, kMostBytes);
  {
    base::MutexLock lock(mutex_);
    if (unknown_origins_.size() >= kMostOrigins || !unknown_origins_.insert(name).second) return;
  }
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("rows are at ", name,
                         ", from where they are not read: --vision_origins has to name every "
                         "vision replica as its --origin does"));
}

std::shared_ptr<v1::VisionService::Stub> OriginClient::ForgetOldest() {
  const auto oldest = std::min_element(
      origins_.begin(), origins_.end(),
      [](const auto& a, const auto& b) { return a.second.last_ask < b.second.last_ask; });
  if (oldest == origins_.end()) return nullptr;
  std::shared_ptr<v1::VisionService::Stub> stub = std::move(oldest->second.stub);
  origins_.erase(oldest);
  return stub;
}

absl::StatusOr<std::shared_ptr<v1::VisionService::Stub>> OriginClient::Approach(
    const std::string& name) {
  const absl::Time now = clock_.Now();
  std::shared_ptr<v1::VisionService::Stub> gone;  // its channel is closed without the lock
  base::MutexLock lock(mutex_);
  if (!origins_.contains(name) && origins_.size() >= options_.max_origins) gone = ForgetOldest();
  Origin& origin = origins_[name];
  origin.last_ask = now;
  if (origin.silent && now < origin.next_attempt) {
    return base::Error(absl::StatusCode::kUnavailable, "ORIGIN_SILENT",
                       absl::StrCat(name, " did not answer a moment ago"));
  }
  origin.next_attempt = now + options_.timeout;  // others wait for what becomes of this one
  if (origin.stub == nullptr) origin.stub = v1::VisionService::NewStub(connect_(name));
  return origin.stub;
}

// What a look that began at `begun` tells of the origin. One that had hardly any time, or whose
// request has ended, tells nothing.
void OriginClient::Judge(const std::string& name, const absl::Status& status,
                         const ReadContext& asker, absl::Time begun) {
  const bool late = absl::IsDeadlineExceeded(status);
  if (late && asker.deadline < begun + options_.timeout / 4) return;
  if (absl::IsCancelled(status) && asker.ended.stop_requested()) return;
  bool fell_silent = false;
  {
    base::MutexLock lock(mutex_);
    const auto found = origins_.find(name);
    if (found == origins_.end()) return;  // forgotten meanwhile
    Origin& origin = found->second;
    fell_silent = late && !origin.silent;
    origin.silent = late;
    origin.next_attempt = clock_.Now() + options_.rest;
  }
  if (!fell_silent) return;
  base::Log(base::LogLevel::kWarning,
            absl::StrCat(name, " does not answer: rows that it has are made anew"));
}

absl::StatusOr<store::RecordPtr> OriginClient::Get(const std::string& origin,
                                                   const store::EmbeddingKey& key,
                                                   const ReadContext& asker) {
  ASSIGN_OR_RETURN(const std::shared_ptr<v1::VisionService::Stub> stub, Approach(origin));
  const absl::Time begun = clock_.Now();
  const absl::StatusOr<std::string> bytes = Read(*stub, key, asker);
  Judge(origin, bytes.status(), asker, begun);
  if (!bytes.ok()) return base::Annotate(bytes.status(), origin);
  ASSIGN_OR_RETURN(store::EmbeddingRecord record, codec_.Decode(*bytes, {.key = key}));
  return std::make_shared<const store::EmbeddingRecord>(std::move(record));
}

absl::StatusOr<std::string> OriginClient::Read(v1::VisionService::Stub& stub,
                                               const store::EmbeddingKey& key,
                                               const ReadContext& asker) {
  grpc::ClientContext context;
  const absl::Time now = clock_.Now();
  rpc::ForwardRequest(ToForward(asker, now + options_.timeout), now, context);
  const std::stop_callback cancel(asker.ended, [&context] { context.TryCancel(); });
  v1::GetRecordRequest request;
  request.set_key(std::string(key.bytes()));
  const auto stream = stub.GetRecord(&context, request);
  std::string bytes;
  v1::GetRecordResponse response;
  bool begun = false;
  while (stream->Read(&response)) {
    if (!std::exchange(begun, true)) {
      if (response.record_bytes() > options_.max_record_bytes) {
        context.TryCancel();
        return base::Error(absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
                           absl::StrCat("a record of ", response.record_bytes(), " bytes; at most ",
                                        options_.max_record_bytes));
      }
      bytes.reserve(response.record_bytes());
    }
    if (bytes.size() + response.chunk().size() > options_.max_record_bytes) {
      context.TryCancel();
      return base::Error(
          absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
          absl::StrCat("a record of more than ", options_.max_record_bytes, " bytes"));
    }
    bytes.append(response.chunk());
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return rpc::FromGrpc(status);
  return bytes;
}

}  // namespace tessera::decode
