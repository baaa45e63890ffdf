#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// How a record is sealed: a kind byte, then XXH3-64, or nonce and AES-256-GMAC tag, over all
// before.
namespace tessera::store {

inline constexpr size_t kMacKeyBytes = 32;
// Kind byte and trailer of the shortest kind.
inline constexpr size_t kMinTrailerBytes = 9;

// Appends kind and trailer to `bytes`: XXH3 where `mac_key` is empty, else a GMAC with a fresh
// nonce. REQUIRES: mac_key is empty or has kMacKeyBytes.
void AppendTrailer(absl::string_view mac_key, std::string& bytes);

// For a record in two pieces, `head` then `body`: how many bytes of `body` stand before kind and
// trailer, once they hold. Otherwise a refusal (record_verdict.h): kBadLength, kBadChecksum,
// kBadMac, or kOtherTrailer for the kind that this reader does not take.
absl::StatusOr<size_t> CheckTrailer(absl::string_view mac_key, absl::string_view head,
                                    absl::string_view body);

}  // namespace tessera::store
