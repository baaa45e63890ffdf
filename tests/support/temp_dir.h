#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "common/base/check.h"

namespace tessera::testing {

// A directory of its own for one test; gone, with all in it, when the test is.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-test-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::testing
