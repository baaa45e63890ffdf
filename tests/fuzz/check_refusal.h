#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// What all targets share. A CHECK that fails ends the process, which libFuzzer reports as a crash.
namespace tessera::fuzz {

inline absl::string_view Bytes(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// An error is INVALID_ARGUMENT with one of the reasons; its message is short and valid UTF-8,
// whatever the input was: it goes into answers and logs.
void CheckRefusal(const absl::Status& status, std::initializer_list<absl::string_view> reasons);

// The message alone.
void CheckMessage(const absl::Status& status);

}  // namespace tessera::fuzz
