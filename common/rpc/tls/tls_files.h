#pragma once

#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/file_watch.h"
#include "common/base/mutex.h"

namespace tessera::rpc {

// Certificates of one side, as paths of PEM files.
struct TlsFiles {
  std::string ca = {};    // whose certificates are believed of the other side
  std::string cert = {};  // our own, with what is between it and its authority
  std::string key = {};   // of our own; without a password
  // The client's: the name that the server's certificate must have; empty: that of the address.
  std::string server_name = {};
  // How often the files are looked at, and again by gRPC: what is new is in use after at most two
  // of these. At least a second.
  absl::Duration refresh = absl::Seconds(5);
  // What errors call the three.
  std::string ca_flag = "tls_ca_file";
  std::string cert_flag = "tls_cert_file";
  std::string key_flag = "tls_key_file";

  bool empty() const { return ca.empty() && cert.empty() && key.empty(); }
};

// A file without a name on any disk, whose content is replaced as a whole. One thread; others may
// open its path meanwhile.
class MemoryFile {
 public:
  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  // Whoever opens the path later reads `bytes`. The time of its last change differs from all
  // before, in seconds.
  absl::Status Replace(absl::string_view bytes);
  // REQUIRES: Replace has succeeded. This process alone can open it, while this lives.
  std::string path() const;

 private:
  int fd_ = -1;
  int64_t versions_ = 0;
};

// Keeps the last good content of TlsFiles where gRPC's watcher of files reads it. That watcher
// would take whatever it finds: of a half-written file or a key beside the certificate of another
// it makes a server that refuses everybody. One thread of its own looks at the files every
// `refresh`; while they are not good the old content stays, and it is logged (FileWatch).
class TlsWatch {
 public:
  // INVALID_ARGUMENT, BAD_OPTION with the flag: a certificate without its key, a file that cannot
  // be read or is no PEM, a key of another certificate.
  static absl::StatusOr<std::unique_ptr<TlsWatch>> Create(TlsFiles files);
  ~TlsWatch();

  const TlsFiles& files() const { return files_; }
  // OK, or why the files as they are now are not in use. Any thread.
  absl::Status state() const;
  std::string ca_path() const { return files_.ca.empty() ? "" : ca_.path(); }
  // Of a file with certificates and key: read twice by gRPC, it is one version of both.
  std::string pair_path() const { return files_.cert.empty() ? "" : pair_.path(); }

 private:
  struct Content {
    std::string ca, pair;
  };
  explicit TlsWatch(TlsFiles files)
      : files_(std::move(files)),
        watch_({files_.ca, files_.cert, files_.key}, "TLS certificates") {}
  absl::StatusOr<Content> Read() const;
  absl::Status Publish(const Content& content);
  absl::Status ReadAndPublish();
  void Run();

  const TlsFiles files_;
  // By Create, then by the thread alone.
  MemoryFile ca_, pair_;
  Content published_;
  base::FileWatch watch_;

  mutable base::Mutex mutex_;
  base::CondVar wake_;
  absl::Status state_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last
};

}  // namespace tessera::rpc
