#pragma once

#include <cstddef>
#include <memory>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tessera::gateway::http {

// Bytes that were read and are not used yet. A read may be under way into its room while bytes are
// taken from its front.
class InputBuffer {
 public:
  static constexpr size_t kReadBytes = 16 << 10;

  // Holds up to `max_bytes`.
  explicit InputBuffer(size_t max_bytes) : max_bytes_(max_bytes) {}

  absl::string_view bytes() const { return {data_.get() + begin_, end_ - begin_}; }
  bool IsFull() const { return bytes().size() + kReadBytes > max_bytes_; }

  // Room for kReadBytes behind what is held, until Commit. REQUIRES: not IsFull(), no other read.
  absl::Span<char> Room();
  // `count` bytes of the room have been read.
  void Commit(size_t count) { end_ += count; }
  void Consume(size_t count) { begin_ += count; }
  void Clear() { begin_ = end_; }

 private:
  const size_t max_bytes_;
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace tessera::gateway::http
