#pragma once

#include <cstddef>

namespace tessera::text {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
};

}  // namespace tessera::text

namespace tessera::decode::jinja {
using text::ByteRange;
}
