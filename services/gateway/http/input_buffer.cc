#include "services/gateway/http/input_buffer.h"

#include <algorithm>
#include <cstring>

namespace tessera::gateway::http {

absl::Span<char> InputBuffer::Room() {
  const absl::string_view held = bytes();
  const size_t needed = held.size() + kReadBytes;
  // Grows as it must; shrinks, for idle connections, once nothing is held.
  if (needed > capacity_ || (held.empty() && capacity_ > kReadBytes)) {
    const size_t capacity =
        held.empty() ? kReadBytes : std::min(max_bytes_, std::max(needed, 2 * capacity_));
    std::unique_ptr<char[]> data(new char[capacity]);
    if (!held.empty()) std::memcpy(data.get(), held.data(), held.size());
    data_ = std::move(data);
    capacity_ = capacity;
  } else if (end_ + kReadBytes > capacity_ || held.empty()) {
    if (!held.empty()) std::memmove(data_.get(), held.data(), held.size());
  } else {
    return {data_.get() + end_, kReadBytes};
  }
  begin_ = 0;
  end_ = held.size();
  return {data_.get() + end_, kReadBytes};
}

}  // namespace tessera::gateway::http
