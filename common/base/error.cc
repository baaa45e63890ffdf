#include "common/base/error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tessera::base {
namespace {

constexpr char kReasonUrl[] = "tessera/reason";
constexpr char kFieldUrl[] = "tessera/field";
constexpr char kRetryUrl[] = "tessera/retry_nanoseconds";
constexpr char kResourceTypeUrl[] = "tessera/resource_type";
constexpr char kResourceNameUrl[] = "tessera/resource_name";
constexpr char kFactPrefix[] = "tessera/fact/";

std::string PayloadText(const absl::Status& status, const char* url) {
  absl::optional<absl::Cord> payload = status.GetPayload(url);
  return payload ? std::string(*payload) : std::string();
}

}  // namespace

absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message) {
  return WithReason(absl::Status(code, message), reason);
}

absl::Status BadField(absl::string_view field, absl::string_view reason,
                      absl::string_view message) {
  return WithField(Error(absl::StatusCode::kInvalidArgument, reason, message), field);
}

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  status.SetPayload(kReasonUrl, absl::Cord(reason));
  return status;
}

absl::Status WithField(absl::Status status, absl::string_view field) {
  status.SetPayload(kFieldUrl, absl::Cord(field));
  return status;
}

absl::Status WithRetry(absl::Status status, absl::Duration delay) {
  status.SetPayload(kRetryUrl, absl::Cord(absl::StrCat(absl::ToInt64Nanoseconds(delay))));
  return status;
}

absl::Status WithResource(absl::Status status, absl::string_view type, absl::string_view name) {
  status.SetPayload(kResourceTypeUrl, absl::Cord(type));
  status.SetPayload(kResourceNameUrl, absl::Cord(name));
  return status;
}

absl::Status WithFact(absl::Status status, absl::string_view key, absl::string_view value) {
  status.SetPayload(absl::StrCat(kFactPrefix, key), absl::Cord(value));
  return status;
}

absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  absl::Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

std::string ReasonOf(const absl::Status& status) { return PayloadText(status, kReasonUrl); }
std::string FieldOf(const absl::Status& status) { return PayloadText(status, kFieldUrl); }

std::pair<std::string, std::string> ResourceOf(const absl::Status& status) {
  return {PayloadText(status, kResourceTypeUrl), PayloadText(status, kResourceNameUrl)};
}

std::map<std::string, std::string> FactsOf(const absl::Status& status) {
  std::map<std::string, std::string> facts;
  status.ForEachPayload([&facts](absl::string_view url, const absl::Cord& value) {
    if (absl::ConsumePrefix(&url, kFactPrefix)) facts[std::string(url)] = std::string(value);
  });
  return facts;
}

std::optional<absl::Duration> RetryOf(const absl::Status& status) {
  int64_t nanoseconds = 0;
  if (!absl::SimpleAtoi(PayloadText(status, kRetryUrl), &nanoseconds)) return std::nullopt;
  return absl::Nanoseconds(nanoseconds);
}

}  // namespace tessera::base
