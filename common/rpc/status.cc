#include "common/rpc/status.h"

#include <string>

#include "common/base/error.h"
#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tessera::rpc {
namespace {

constexpr char kDomain[] = "tessera";

// Of kMostErrorBytes, for the names of headers and for trailers of other kinds.
constexpr size_t kOtherTrailerBytes = 512;
// However little there is room for. Reasons and keys are ours: they are cut only where a peer is
// not one of ours.
constexpr size_t kMostNameBytes = 128;
constexpr size_t kMostFacts = 8;

// How much of what a status says is sent. Of a message that is no UTF-8 a client could parse
// nothing, and errors show what clients sent.
struct Room {
  size_t message = 2048;
  size_t value = 200;  // of a fact, a field, a name

  std::string MessageOf(const absl::Status& status) const {
    return base::Excerpt(status.message(), message);
  }
  std::string ValueOf(absl::string_view text) const { return base::Excerpt(text, value); }
};

void AddErrorInfo(const absl::Status& status, const Room& room, google::rpc::Status& out) {
  google::rpc::ErrorInfo info;
  info.set_reason(base::Excerpt(base::ReasonOf(status), kMostNameBytes));
  info.set_domain(kDomain);
  for (const auto& [key, value] : base::FactsOf(status)) {
    if (info.metadata().size() == kMostFacts) break;
    (*info.mutable_metadata())[base::Excerpt(key, kMostNameBytes)] = room.ValueOf(value);
  }
  if (info.reason().empty() && info.metadata().empty()) return;
  out.add_details()->PackFrom(info);
}

void AddRetryInfo(const absl::Status& status, google::rpc::Status& out) {
  const std::optional<absl::Duration> delay = base::RetryOf(status);
  if (!delay) return;
  google::rpc::RetryInfo info;
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(*delay);
  info.mutable_retry_delay()->set_seconds(nanoseconds / 1000000000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
  out.add_details()->PackFrom(info);
}

void AddBadRequest(const absl::Status& status, const Room& room, google::rpc::Status& out) {
  const std::string field = base::FieldOf(status);
  if (field.empty()) return;
  google::rpc::BadRequest bad;
  google::rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
  violation.set_field(room.ValueOf(field));
  violation.set_description(room.MessageOf(status));
  out.add_details()->PackFrom(bad);
}

void AddResourceInfo(const absl::Status& status, const Room& room, google::rpc::Status& out) {
  const auto [type, name] = base::ResourceOf(status);
  if (type.empty()) return;
  google::rpc::ResourceInfo info;
  info.set_resource_type(base::Excerpt(type, kMostNameBytes));
  info.set_resource_name(room.ValueOf(name));
  info.set_description(room.MessageOf(status));
  out.add_details()->PackFrom(info);
}

absl::Status WithDetail(absl::Status status, const google::protobuf::Any& any) {
  google::rpc::ErrorInfo info;
  google::rpc::RetryInfo retry;
  google::rpc::BadRequest bad;
  google::rpc::ResourceInfo resource;
  if (any.UnpackTo(&info)) {
    if (!info.reason().empty()) status = base::WithReason(std::move(status), info.reason());
    for (const auto& [key, value] : info.metadata()) {
      status = base::WithFact(std::move(status), key, value);
    }
  } else if (any.UnpackTo(&retry)) {
    status = base::WithRetry(std::move(status), absl::Seconds(retry.retry_delay().seconds()) +
                                                    absl::Nanoseconds(retry.retry_delay().nanos()));
  } else if (any.UnpackTo(&bad) && bad.field_violations_size() > 0) {
    status = base::WithField(std::move(status), bad.field_violations(0).field());
  } else if (any.UnpackTo(&resource)) {
    status =
        base::WithResource(std::move(status), resource.resource_type(), resource.resource_name());
  }
  return status;
}

grpc::Status Build(const absl::Status& status, const Room& room) {
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(room.MessageOf(status));
  AddErrorInfo(status, room, details);
  AddRetryInfo(status, details);
  AddBadRequest(status, room, details);
  AddResourceInfo(status, room, details);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.details_size() > 0 ? details.SerializeAsString() : std::string());
}

}  // namespace

size_t EncodedErrorBytes(const grpc::Status& status) {
  size_t bytes = 0;
  for (const char c : status.error_message()) bytes += c < 0x20 || c > 0x7e || c == '%' ? 3 : 1;
  return bytes + (status.error_details().size() + 2) / 3 * 4;
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  constexpr size_t kLeast = 32;  // which fits: EveryErrorFits of the test
  Room room;
  while (true) {
    const grpc::Status built = Build(status, room);
    if (room.message <= kLeast ||
        EncodedErrorBytes(built) + kOtherTrailerBytes <= kMostErrorBytes) {
      return built;
    }
    if (room.value > kLeast) {
      room.value /= 2;
    } else {
      room.message /= 2;
    }
  }
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status out(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    return out;
  }
  for (const google::protobuf::Any& any : details.details()) out = WithDetail(std::move(out), any);
  return out;
}

}  // namespace tessera::rpc
