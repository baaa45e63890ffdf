#include "services/gateway/fleet/name_lookup.h"

#include <optional>
#include <utility>

#include "common/base/clock.h"

namespace tessera::gateway {

NameLookup::NameLookup(const std::vector<std::string>& names, const Resolve& resolve,
                       absl::Duration patience)
    : patience_(patience) {
  for (const std::string& name : names) {
    calls_.push_back(
        std::make_unique<base::DetachedCall<Addresses>>([resolve, name] { return resolve(name); }));
  }
}

void NameLookup::Cancel() {
  for (const auto& call : calls_) call->Cancel();
}

std::vector<NameLookup::Addresses> NameLookup::Ask() {
  std::vector<absl::Status> begun;
  for (const auto& call : calls_) begun.push_back(call->Begin());
  const absl::Time deadline = base::RealClock().Now() + patience_;
  std::vector<Addresses> answers;
  for (size_t i = 0; i < calls_.size(); ++i) {
    if (!begun[i].ok()) {
      answers.push_back(begun[i]);
      continue;
    }
    std::optional<Addresses> answer = calls_[i]->Await(deadline - base::RealClock().Now());
    if (calls_[i]->cancelled()) return {};
    answers.push_back(answer.has_value() ? *std::move(answer)
                                         : absl::DeadlineExceededError("no answer in time"));
  }
  return answers;
}

}  // namespace tessera::gateway
