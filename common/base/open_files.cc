#include "common/base/open_files.h"

#include <sys/resource.h>

#include <algorithm>

#include "common/base/check.h"

namespace tessera::base {
namespace {

constexpr double kMost = 16384;

}  // namespace

int FilesForConnections(double share) {
  CHECK(share > 0 && share <= 1);
  rlimit limit = {};
  const bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  const double all = known ? std::min(static_cast<double>(limit.rlim_cur), kMost) : kMost;
  return static_cast<int>(all * share);
}

}  // namespace tessera::base
