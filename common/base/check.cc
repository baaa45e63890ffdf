#include "common/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tessera::base {

void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "CHECK failed: %s at %s:%d\n", what.c_str(), file, line);
  std::abort();
}

}  // namespace tessera::base
