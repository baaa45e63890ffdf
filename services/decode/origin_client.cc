#include "services/decode/origin_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/status.h"

namespace tessera::decode {

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
    if (told_.size() >= kMostOrigins || !told_.insert(name).second) return;
  }
  base::Log(base::LogLevel::kWarning,
            absl::StrCat("rows are at ", name,
                         ", from where they are not read: --vision_origins has to name every "
                         "vision replica as its --origin does"));
}

v1::VisionService::Stub& OriginClient::StubOf(const std::string& origin) {
  base::MutexLock lock(mutex_);
  std::unique_ptr<v1::VisionService::Stub>& stub = stubs_[origin];
  if (stub == nullptr) stub = v1::VisionService::NewStub(connect_(origin));
  return *stub;
}

absl::StatusOr<store::RecordPtr> OriginClient::Get(const std::string& origin,
                                                   const store::EmbeddingKey& key) {
  ASSIGN_OR_RETURN(const std::string bytes, Read(origin, key));
  ASSIGN_OR_RETURN(store::EmbeddingRecord record, codec_.Decode(bytes, {.key = key}));
  return std::make_shared<const store::EmbeddingRecord>(std::move(record));
}

absl::StatusOr<std::string> OriginClient::Read(const std::string& origin,
                                               const store::EmbeddingKey& key) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       absl::ToChronoMicroseconds(options_.timeout));
  v1::GetRecordRequest request;
  request.set_key(std::string(key.bytes()));
  const auto stream = StubOf(origin).GetRecord(&context, request);
  std::string bytes;
  v1::GetRecordResponse response;
  bool begun = false;
  while (stream->Read(&response)) {
    if (!std::exchange(begun, true)) {
      if (response.record_bytes() > options_.max_record_bytes) {
        context.TryCancel();
        return base::Error(
            absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
            absl::StrCat(origin, " would send a record of ", response.record_bytes(), " bytes"));
      }
      bytes.reserve(response.record_bytes());
    }
    if (bytes.size() + response.chunk().size() > options_.max_record_bytes) {
      context.TryCancel();
      return base::Error(
          absl::StatusCode::kResourceExhausted, "RECORD_TOO_LARGE",
          absl::StrCat(origin, " sends more than ", options_.max_record_bytes, " bytes"));
    }
    bytes.append(response.chunk());
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) return base::Annotate(rpc::FromGrpc(status), origin);
  return bytes;
}

}  // namespace tessera::decode
