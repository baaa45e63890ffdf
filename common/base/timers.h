#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace tessera::base {

// Runs functions when their time has come, one after another, on a thread of its own. Any thread.
class Timers {
 public:
  using Id = uint64_t;

  // `clock` outlives the timers.
  explicit Timers(Clock& clock);
  // Drops what is not due and waits for what runs.
  ~Timers();
  Timers(const Timers&) = delete;
  Timers& operator=(const Timers&) = delete;

  // `run` must not block.
  Id At(absl::Time due, std::function<void()> run);
  // What runs already is not waited for; what has run is no error.
  void Cancel(Id id);

 private:
  using Due = std::pair<absl::Time, Id>;  // of equal times the first asked for

  void Run();

  Clock& clock_;
  Mutex mutex_;
  CondVar changed_;
  std::map<Due, std::function<void()>> due_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Id, absl::Time> times_ ABSL_GUARDED_BY(mutex_);
  Id last_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace tessera::base
