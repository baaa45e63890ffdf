#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::base {

using Sha256Digest = std::array<uint8_t, 32>;

// Incremental SHA-256 (FIPS 180-4). One thread.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(absl::string_view bytes);
  // Appends the length of `bytes` (u64, little-endian), then the bytes: fields never run together.
  void UpdateField(absl::string_view bytes);
  Sha256Digest Finish();  // REQUIRES: called once between constructor or Reset and the next Reset
  void Reset();           // as new; allocates nothing

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest Sha256Of(absl::string_view bytes);
Sha256Digest HmacSha256(absl::string_view key, absl::string_view bytes);

std::string ToHex(absl::string_view bytes);  // lower case
std::string ToHex(const Sha256Digest& digest);
absl::StatusOr<Sha256Digest> DigestFromHex(absl::string_view hex);

// Equal without a timing side channel.
bool ConstantTimeEqual(absl::string_view a, absl::string_view b);

// `count` bytes from the operating system's generator.
std::string RandomBytes(size_t count);

}  // namespace tessera::base
