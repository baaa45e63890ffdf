#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Typed errors: an absl::Status that carries what CONVENTIONS calls ErrorInfo, BadRequest and
// RetryInfo. common/rpc turns them into google.rpc details and back; nothing else parses messages.
namespace tessera::base {

// An error with a stable UPPER_SNAKE `reason`. The message says what, where and what to do.
absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message);

// INVALID_ARGUMENT that blames `field` (a request field, a flag or a config key).
absl::Status BadField(absl::string_view field, absl::string_view reason, absl::string_view message);

// The same status with a reason, a field or a retry delay attached (an older one is replaced).
absl::Status WithReason(absl::Status status, absl::string_view reason);
absl::Status WithField(absl::Status status, absl::string_view field);
absl::Status WithRetry(absl::Status status, absl::Duration delay);

// NOT_FOUND of a named thing: `type` is "model" or "image_handle".
absl::Status WithResource(absl::Status status, absl::string_view type, absl::string_view name);
// A further fact for ErrorInfo.metadata, such as ("stage", "encode").
absl::Status WithFact(absl::Status status, absl::string_view key, absl::string_view value);

// Prefixes the message with "context: ", keeping code and details.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Empty when absent.
std::string ReasonOf(const absl::Status& status);
std::string FieldOf(const absl::Status& status);
std::optional<absl::Duration> RetryOf(const absl::Status& status);
std::pair<std::string, std::string> ResourceOf(const absl::Status& status);  // {type, name}
std::map<std::string, std::string> FactsOf(const absl::Status& status);

}  // namespace tessera::base
