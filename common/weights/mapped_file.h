#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tessera::weights {

// A regular file mapped read-only. Immutable: any thread. The bytes are read from disk when they
// are first touched. Where somebody has cut the file short meanwhile there are none to be had: the
// process ends with exit code 1 and a line that names the file (its handler of SIGBUS; one for all
// files, which leaves others' SIGBUS as they are). So model files are replaced by rename, never
// rewritten in place.
class MappedFile {
 public:
  // NOT_FOUND when absent; INVALID_ARGUMENT when it is no regular file or cannot be mapped. Errors
  // name the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  absl::string_view bytes() const { return bytes_; }

  // FAILED_PRECONDITION (reason WEIGHTS_CHANGED) when the file that is mapped has since been cut,
  // extended or written to.
  absl::Status CheckUnchanged() const;

 private:
  MappedFile(std::string path, int fd, const struct stat& info, absl::string_view bytes);

  const std::string path_;
  const int fd_;
  const struct stat info_;
  const absl::string_view bytes_;
};

}  // namespace tessera::weights
