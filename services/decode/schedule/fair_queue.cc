#include "services/decode/schedule/fair_queue.h"

#include <algorithm>
#include <limits>

#include "common/base/check.h"

namespace tessera::decode {
namespace {

constexpr int32_t kMostDebtors = 1024;

}  // namespace

void FairQueue::Open(const Sequence& sequence) {
  std::unique_ptr<Account>& account = accounts_[sequence.tenant];
  if (account == nullptr) {
    account = std::make_unique<Account>();
    account->tenant = sequence.tenant;
    turns_.push_back(account.get());
  } else if (account->open == 0) {
    --debtors_;
  }
  ++account->open;
}

void FairQueue::Close(const Sequence& sequence) {
  Account& account = *accounts_.at(sequence.tenant);
  if (--account.open > 0) return;
  CHECK(account.waiting.empty());
  if (account.credit >= 0) return CloseAccount(account);
  if (++debtors_ > kMostDebtors) ForgetOldestDebt();
}

void FairQueue::CloseAccount(Account& account) {
  const auto turn = std::find(turns_.begin(), turns_.end(), &account);
  if (static_cast<size_t>(turn - turns_.begin()) < turn_) --turn_;
  turns_.erase(turn);
  if (turn_ >= turns_.size()) turn_ = 0;
  accounts_.erase(account.tenant);
}

void FairQueue::ForgetOldestDebt() {
  const auto debtor = std::find_if(turns_.begin(), turns_.end(),
                                   [](const Account* account) { return account->open == 0; });
  --debtors_;
  CloseAccount(**debtor);
}

void FairQueue::Push(Sequence& sequence) {
  Account& account = *accounts_.at(sequence.tenant);
  std::deque<Sequence*>& waiting = account.waiting;
  // What was left of its turn when nothing waited any more is lost.
  if (waiting.empty()) account.credit = std::min<int64_t>(account.credit, 0);
  const auto at = std::upper_bound(waiting.begin(), waiting.end(), sequence.id,
                                   [](SequenceId id, const Sequence* s) { return id < s->id; });
  waiting.insert(at, &sequence);
  ++size_;
}

bool FairQueue::Erase(Sequence& sequence) {
  const auto account = accounts_.find(sequence.tenant);
  if (account == accounts_.end()) return false;
  std::deque<Sequence*>& waiting = account->second->waiting;
  const auto it = std::find(waiting.begin(), waiting.end(), &sequence);
  if (it == waiting.end()) return false;
  waiting.erase(it);
  --size_;
  return true;
}

Sequence* FairQueue::Head() {
  if (empty()) return nullptr;
  while (true) {
    for (size_t i = 0; i < turns_.size(); ++i) {
      Account& account = *turns_[turn_];
      if (!account.waiting.empty() && account.credit > 0) return account.waiting.front();
      turn_ = (turn_ + 1) % turns_.size();
    }
    TopUp();
  }
}

// As many quanta to each who waits as bring one of them above zero.
void FairQueue::TopUp() {
  int64_t largest = std::numeric_limits<int64_t>::min();
  for (const Account* account : turns_) {
    if (!account->waiting.empty()) largest = std::max(largest, account->credit);
  }
  const int64_t rounds = -largest / quantum_ + 1;
  for (size_t i = turns_.size(); i-- > 0;) {
    Account& account = *turns_[i];
    account.credit += rounds * quantum_;
    if (!account.waiting.empty()) continue;
    account.credit = std::min<int64_t>(account.credit, 0);
    if (account.open > 0 || account.credit < 0) continue;
    --debtors_;
    CloseAccount(account);
  }
}

void FairQueue::Charge(const Sequence& sequence, int32_t tokens) {
  accounts_.at(sequence.tenant)->credit -= tokens;
}

}  // namespace tessera::decode
