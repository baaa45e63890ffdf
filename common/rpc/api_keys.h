#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/file_watch.h"
#include "common/base/mutex.h"

namespace tessera::rpc {

// Bearer keys and the tenants behind them, from a file with a line for each key:
//   TENANT sha256:HEX
// HEX is the SHA-256 of the key, TENANT 1 to 64 of [A-Za-z0-9_.-]; a tenant may have several keys.
// Empty lines and lines that begin with # say nothing. No key is ever logged or told in an error.
// Any thread.
class ApiKeys {
 public:
  // Without a path there are no keys, and everybody is the tenant "". INVALID_ARGUMENT, BAD_OPTION
  // of "api_keys_file" with the line: a file that cannot be read, holds no key, or one twice.
  // `clock` outlives this.
  static absl::StatusOr<std::unique_ptr<ApiKeys>> Create(std::string path, base::Clock& clock);

  bool on() const { return !path_.empty(); }

  // The tenant behind the value of an Authorization header, "Bearer KEY". UNAUTHENTICATED:
  // KEY_MISSING, KEY_UNKNOWN. Compares with every key, in a time that tells nothing of them.
  // Looks at the file at most once a second (whoever comes reads it, some kB); while a new one is
  // not good the old keys stay, and it is logged (FileWatch).
  absl::StatusOr<std::string> TenantOf(absl::string_view authorization) const;
  // The same of a call's metadata.
  absl::StatusOr<std::string> TenantOf(const grpc::ServerContextBase& context) const;

 private:
  struct Entry {
    std::string tenant;
    base::Sha256Digest digest;
  };
  using Entries = std::vector<Entry>;

  ApiKeys(std::string path, base::Clock& clock)
      : path_(std::move(path)), clock_(clock), watch_({path_}, "keys") {}
  static absl::StatusOr<Entries> Parse(absl::string_view text);
  absl::Status Read() const;
  std::shared_ptr<const Entries> Current() const;

  const std::string path_;
  base::Clock& clock_;
  mutable base::FileWatch watch_;
  mutable base::Mutex mutex_;
  mutable std::shared_ptr<const Entries> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::rpc
