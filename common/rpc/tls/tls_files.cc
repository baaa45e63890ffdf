#include "common/rpc/tls/tls_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/pem.h"
#include "common/base/status_macros.h"

namespace tessera::rpc {
namespace {

constexpr size_t kMaxPemBytes = 1 << 20;  // of one file

absl::Status Bad(const std::string& flag, const std::string& file, absl::string_view why) {
  return base::BadField(flag, "BAD_OPTION", absl::StrCat("--", flag, " ", file, ": ", why));
}

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& file) {
  absl::StatusOr<std::string> text = base::ReadFile(file, kMaxPemBytes);
  if (!text.ok()) return Bad(flag, file, text.status().message());
  return text;
}

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

MemoryFile::~MemoryFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status MemoryFile::Replace(absl::string_view bytes) {
  const int fresh = memfd_create("tessera-tls", MFD_CLOEXEC);
  // gRPC knows that a pair changed while it read it by this time alone, in seconds.
  const timespec version = {++versions_, 0};
  const timespec times[2] = {version, version};
  const bool written = fresh >= 0 && WriteAll(fresh, bytes) && futimens(fresh, times) == 0;
  if (written && fd_ < 0) {
    fd_ = fresh;
    return absl::OkStatus();
  }
  const bool replaced = written && dup3(fresh, fd_, O_CLOEXEC) >= 0;
  if (fresh >= 0) close(fresh);
  if (replaced) return absl::OkStatus();
  return base::Error(absl::StatusCode::kInternal, "TLS_UNAVAILABLE",
                     "certificates cannot be kept in memory");
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", fd_); }

absl::StatusOr<std::unique_ptr<TlsWatch>> TlsWatch::Create(TlsFiles files) {
  if (files.cert.empty() != files.key.empty()) {
    const std::string& missing = files.cert.empty() ? files.cert_flag : files.key_flag;
    return base::BadField(missing, "BAD_OPTION",
                          absl::StrCat("--", files.cert_flag, " and --", files.key_flag,
                                       " belong together: --", missing, " is missing"));
  }
  if (files.refresh < absl::Seconds(1)) {
    return absl::InvalidArgumentError("certificates are looked at once a second at most");
  }
  std::unique_ptr<TlsWatch> watch(new TlsWatch(std::move(files)));
  RETURN_IF_ERROR(watch->ReadAndPublish());
  watch->thread_ = std::thread([&watch = *watch] { watch.Run(); });
  return watch;
}

TlsWatch::~TlsWatch() {
  {
    base::MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

absl::Status TlsWatch::state() const {
  base::MutexLock lock(mutex_);
  return state_;
}

absl::StatusOr<TlsWatch::Content> TlsWatch::Read() const {
  Content content;
  if (!files_.ca.empty()) {
    ASSIGN_OR_RETURN(content.ca, ReadPem(files_.ca_flag, files_.ca));
    const absl::Status good = base::CheckCertificates(content.ca);
    if (!good.ok()) return Bad(files_.ca_flag, files_.ca, good.message());
  }
  if (files_.cert.empty()) return content;
  ASSIGN_OR_RETURN(const std::string certificates, ReadPem(files_.cert_flag, files_.cert));
  ASSIGN_OR_RETURN(const std::string key, ReadPem(files_.key_flag, files_.key));
  absl::Status good = base::CheckCertificates(certificates);
  if (!good.ok()) return Bad(files_.cert_flag, files_.cert, good.message());
  good = base::CheckKeyPair(certificates, key);
  if (!good.ok()) return Bad(files_.key_flag, files_.key, good.message());
  content.pair = absl::StrCat(certificates, "\n", key);
  return content;
}

absl::Status TlsWatch::Publish(const Content& content) {
  if (content.ca != published_.ca) RETURN_IF_ERROR(ca_.Replace(content.ca));
  if (content.pair != published_.pair) RETURN_IF_ERROR(pair_.Replace(content.pair));
  published_ = content;
  return absl::OkStatus();
}

absl::Status TlsWatch::ReadAndPublish() {
  const absl::StatusOr<Content> content = Read();
  const absl::Status published = content.ok() ? Publish(*content) : content.status();
  base::MutexLock lock(mutex_);
  state_ = published;
  return published;
}

void TlsWatch::Run() {
  base::Clock& clock = base::RealClock();
  base::MutexLock lock(mutex_);
  while (!stopped_) {
    const absl::Time next = clock.Now() + files_.refresh;
    while (!stopped_ && clock.Now() < next) clock.WaitUntil(wake_, mutex_, next);
    if (stopped_) return;
    mutex_.Unlock();
    watch_.Look(clock.Now(), [this] { return ReadAndPublish(); });
    mutex_.Lock();
  }
}

}  // namespace tessera::rpc
