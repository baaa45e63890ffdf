#include "common/rpc/status.h"

#include <string>

#include "common/base/error.h"
#include "common/base/utf8.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace tessera::rpc {
namespace {

constexpr char kDomain[] = "tessera";

// Of a message that is no UTF-8 a client can parse nothing, and errors show what clients sent.
std::string MessageOf(const absl::Status& status) { return base::ToUtf8(status.message()); }

void AddErrorInfo(const absl::Status& status, google::rpc::Status& out) {
  google::rpc::ErrorInfo info;
  info.set_reason(base::ReasonOf(status));
  info.set_domain(kDomain);
  for (const auto& [key, value] : base::FactsOf(status)) {
    (*info.mutable_metadata())[base::ToUtf8(key)] = base::ToUtf8(value);
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

void AddBadRequest(const absl::Status& status, google::rpc::Status& out) {
  const std::string field = base::FieldOf(status);
  if (field.empty()) return;
  google::rpc::BadRequest bad;
  google::rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
  violation.set_field(base::ToUtf8(field));
  violation.set_description(MessageOf(status));
  out.add_details()->PackFrom(bad);
}

void AddResourceInfo(const absl::Status& status, google::rpc::Status& out) {
  const auto [type, name] = base::ResourceOf(status);
  if (type.empty()) return;
  google::rpc::ResourceInfo info;
  info.set_resource_type(type);
  info.set_resource_name(base::ToUtf8(name));
  info.set_description(MessageOf(status));
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

}  // namespace

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(MessageOf(status));
  AddErrorInfo(status, details);
  AddRetryInfo(status, details);
  AddBadRequest(status, details);
  AddResourceInfo(status, details);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.details_size() > 0 ? details.SerializeAsString() : std::string());
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
