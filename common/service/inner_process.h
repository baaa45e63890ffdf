#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/compute_pool.h"
#include "common/service/options.h"
#include "common/service/process.h"
#include "common/store/set/store_set.h"
#include "common/weights/canary_file.h"

namespace grpc {
class Service;
}

namespace tessera::service {

// What a service that only the other services ask can stand on. Outlives it.
struct Ground {
  Process& process;
  base::ComputePool& pool;
  store::StoreSet& stores;
};

// Such a service in a process of its own. One thread calls; the operations port calls what
// MakePages made.
class InnerService {
 public:
  virtual ~InnerService() = default;

  // May be called before Load.
  virtual Pages MakePages() = 0;
  // Once. Errors name the flag, the config's key or the tensor.
  virtual absl::Status Load(const Ground& ground) = 0;

  // REQUIRES of all below: Load has succeeded.
  virtual grpc::Service* grpc_service() = 0;
  virtual const weights::CanaryResult& canary() const = 0;
  // What it runs on, for the start-up report: indented lines without the last line's end.
  virtual std::string Report() const = 0;
  // One line for the log of what was done in the last `span`, where there is something to say.
  // Called every `span`.
  virtual void LogLoad(absl::Duration span) = 0;
  // Refuses what is new, waits for the rest until `deadline`.
  virtual void Drain(absl::Time deadline) = 0;
};

struct InnerNames {
  std::string program;  // "tessera-vision"
  std::string service;  // "tessera.v1.VisionService"
};

// Loads, serves, and drains when SIGTERM comes; a second one ends the process at once. `changed`:
// flags, for the report. INVALID_ARGUMENT (BAD_OPTION) where strangers could reach the address.
absl::Status RunInner(const InnerOptions& options, const InnerNames& names,
                      const std::vector<std::string>& changed,
                      std::unique_ptr<InnerService> service);

}  // namespace tessera::service
