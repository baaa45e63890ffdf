#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/detached_call.h"

namespace tessera::gateway {

// Asks for the addresses of names, all at the same time: one that hangs in the system's resolver
// holds neither the others nor whoever asks. One thread calls Ask; Cancel is for any.
class NameLookup {
 public:
  using Addresses = absl::StatusOr<std::vector<std::string>>;
  // Any thread; may block, and be called after this object is gone.
  using Resolve = std::function<Addresses(const std::string& name)>;

  // `patience`: of one Ask. A name that takes longer has its answer in a later one.
  NameLookup(const std::vector<std::string>& names, const Resolve& resolve,
             absl::Duration patience = absl::Seconds(1));

  // Of each name, in their order; empty once cancelled. DEADLINE_EXCEEDED where one takes longer.
  std::vector<Addresses> Ask();
  // Ends an Ask that waits, and those to come.
  void Cancel();

 private:
  const absl::Duration patience_;
  std::vector<std::unique_ptr<base::DetachedCall<Addresses>>> calls_;
};

}  // namespace tessera::gateway
