#include "services/gateway/running_answers.h"

#include <vector>

#include "services/gateway/answer.h"

namespace tessera::gateway {

void RunningAnswers::Add(const std::shared_ptr<Answer>& answer) {
  base::MutexLock lock(mutex_);
  answers_.emplace(answer.get(), answer);
}

void RunningAnswers::Remove(const Answer& answer) {
  base::MutexLock lock(mutex_);
  answers_.erase(&answer);
}

void RunningAnswers::AbortAll(const absl::Status& status) {
  std::vector<std::shared_ptr<Answer>> running;  // they are told, and perhaps go, without the lock
  {
    base::MutexLock lock(mutex_);
    for (const auto& [name, weak] : answers_) {
      if (std::shared_ptr<Answer> answer = weak.lock()) running.push_back(std::move(answer));
    }
  }
  for (const std::shared_ptr<Answer>& answer : running) answer->Abort(status);
}

}  // namespace tessera::gateway
