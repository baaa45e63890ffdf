#pragma once

#include <sys/resource.h>

#include "common/base/check.h"

namespace tessera::testing {

// The limit of this process's open files while it lives: nothing is opened beyond, what is open
// stays.
class FileLimit {
 public:
  explicit FileLimit(rlim_t files) {
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit less = before_;
    less.rlim_cur = files;
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &less), 0);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_ = {};
};

}  // namespace tessera::testing
