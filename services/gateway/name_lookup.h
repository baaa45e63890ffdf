#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tessera::gateway {

// Asks for the addresses of names. The system's resolver cannot be cancelled and may take half a
// minute: it runs on a thread of its own that nobody waits for. One thread calls Ask; Cancel is for
// any.
class NameLookup {
 public:
  using Addresses = absl::StatusOr<std::vector<std::string>>;
  // Any thread; may block, and be called after this object is gone.
  using Resolve = std::function<Addresses(const std::string& name)>;

  NameLookup(std::vector<std::string> names, Resolve resolve);
  ~NameLookup() { Cancel(); }
  NameLookup(const NameLookup&) = delete;
  NameLookup& operator=(const NameLookup&) = delete;

  // Of each name, in their order; empty once cancelled.
  std::vector<Addresses> Ask();
  // Ends an Ask that waits, and those to come.
  void Cancel();

 private:
  struct State;  // shared with the thread that asks the system

  const std::shared_ptr<State> state_;
};

}  // namespace tessera::gateway
