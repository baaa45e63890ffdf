#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// What is looked at of certificates and keys before a library that speaks TLS gets them. Any
// thread. Errors are INVALID_ARGUMENT and hold nothing of the text.
namespace tessera::base {

// One certificate or more in PEM, each whole.
absl::Status CheckCertificates(absl::string_view pem);

// CheckCertificates, and a private key without a password in PEM that belongs to the first of them.
absl::Status CheckKeyPair(absl::string_view certificates, absl::string_view key);

}  // namespace tessera::base
