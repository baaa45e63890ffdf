#include "common/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error.h"

namespace tessera::weights {
namespace {

absl::Status SystemError(absl::string_view path, absl::string_view what, int error) {
  const auto code =
      error == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kInvalidArgument;
  return base::Error(code, "WEIGHTS_UNREADABLE",
                     absl::StrCat(path, ": ", what, ": ", std::strerror(error)));
}

// Files that are mapped, for the handler of SIGBUS. Those that find no place have none.
std::array<std::atomic<const MappedFile*>, 1024> mapped;

void Tell(absl::string_view text) {
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(1);
}

// Calls only what a signal handler may.
void OnBusError(int, siginfo_t* info, void*) {
  const char* at = static_cast<const char*>(info->si_addr);
  for (const std::atomic<const MappedFile*>& slot : mapped) {
    const MappedFile* file = slot.load();
    if (file == nullptr || at < file->bytes().data() ||
        at >= file->bytes().data() + file->bytes().size()) {
      continue;
    }
    Tell(file->path());
    Tell(
        ": was cut short, or cannot be read any more, while it was in use; write a new file and "
        "rename it into place\n");
    _exit(1);
  }
  std::signal(SIGBUS, SIG_DFL);
  std::raise(SIGBUS);  // behind this handler: it ends the process as it would have
}

void WatchForBusErrors() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace

MappedFile::MappedFile(std::string path, int fd, const struct stat& info, absl::string_view bytes)
    : path_(std::move(path)), fd_(fd), info_(info), bytes_(bytes) {
  WatchForBusErrors();
  for (std::atomic<const MappedFile*>& slot : mapped) {
    const MappedFile* none = nullptr;
    if (slot.compare_exchange_strong(none, this)) break;
  }
}

MappedFile::~MappedFile() {
  for (std::atomic<const MappedFile*>& slot : mapped) {
    const MappedFile* self = this;
    if (slot.compare_exchange_strong(self, nullptr)) break;
  }
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  close(fd_);
}

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO of that name must not hold us up before fstat tells what it is.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, "cannot open", errno);
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return base::Error(absl::StatusCode::kInvalidArgument, "WEIGHTS_UNREADABLE",
                       absl::StrCat(path, ": not a regular file"));
  }
  const size_t size = static_cast<size_t>(info.st_size);
  absl::string_view bytes;
  if (size > 0) {
    void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return SystemError(path, "cannot map", error);
    }
    bytes = absl::string_view(static_cast<const char*>(data), size);
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, fd, info, bytes));
}

absl::Status MappedFile::CheckUnchanged() const {
  struct stat now;
  if (fstat(fd_, &now) != 0) return SystemError(path_, "cannot look at", errno);
  if (now.st_size == info_.st_size && now.st_mtim.tv_sec == info_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == info_.st_mtim.tv_nsec) {
    return absl::OkStatus();
  }
  return base::Error(
      absl::StatusCode::kFailedPrecondition, "WEIGHTS_CHANGED",
      absl::StrCat(path_, ": changed while it was in use (", info_.st_size, " bytes before, ",
                   now.st_size, " now); write a new file and rename it into place"));
}

}  // namespace tessera::weights
