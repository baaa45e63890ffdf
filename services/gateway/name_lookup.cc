#include "services/gateway/name_lookup.h"

#include <system_error>
#include <thread>
#include <utility>

#include "common/base/mutex.h"

namespace tessera::gateway {

struct NameLookup::State {
  std::vector<std::string> names;
  Resolve resolve;
  base::Mutex mutex;
  base::CondVar changed;
  bool cancelled ABSL_GUARDED_BY(mutex) = false;
  bool answered ABSL_GUARDED_BY(mutex) = false;
  std::vector<Addresses> answers ABSL_GUARDED_BY(mutex);
};

NameLookup::NameLookup(std::vector<std::string> names, Resolve resolve)
    : state_(std::make_shared<State>()) {
  state_->names = std::move(names);
  state_->resolve = std::move(resolve);
}

void NameLookup::Cancel() {
  base::MutexLock lock(state_->mutex);
  state_->cancelled = true;
  state_->changed.SignalAll();
}

std::vector<NameLookup::Addresses> NameLookup::Ask() {
  State& state = *state_;
  {
    base::MutexLock lock(state.mutex);
    if (state.cancelled) return {};
  }
  const auto ask = [shared = state_] {
    std::vector<Addresses> answers;
    for (const std::string& name : shared->names) answers.push_back(shared->resolve(name));
    base::MutexLock lock(shared->mutex);
    shared->answers = std::move(answers);
    shared->answered = true;
    shared->changed.SignalAll();
  };
  try {
    std::thread(ask).detach();
  } catch (const std::system_error& error) {  // no thread can be had
    return std::vector<Addresses>(state.names.size(), absl::UnavailableError(error.what()));
  }
  base::MutexLock lock(state.mutex);
  while (!state.answered && !state.cancelled) state.changed.Wait(state.mutex);
  if (!std::exchange(state.answered, false)) return {};
  return std::exchange(state.answers, {});
}

}  // namespace tessera::gateway
