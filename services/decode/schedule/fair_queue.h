#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "services/decode/schedule/sequence.h"

namespace tessera::decode {

// The sequences that wait for a place, by tenant. Pure; one thread.
//
// Within a tenant: by arrival. Between tenants: deficit round robin over tokens (Shreedhar and
// Varghese, SIGCOMM 1995), where a turn may overdraw: a tenant whose credit is above zero goes on
// until what was computed for it has used it up, then the next tenant has its turn; when nobody who
// waits has credit, each gets `quantum` tokens more. So whoever waits comes next after a bounded
// number of tokens. Who has nothing waiting keeps no credit; debts are paid off as the others get
// theirs, also while a tenant asks nothing: else who asks one large thing after the other would get
// more than its share.
class FairQueue {
 public:
  explicit FairQueue(int32_t quantum) : quantum_(quantum) {}

  // Between these a tenant has an account. Every sequence of Push is between them.
  void Open(const Sequence& sequence);
  void Close(const Sequence& sequence);

  // REQUIRES: not in the queue.
  void Push(Sequence& sequence);
  // False when it is not in the queue.
  bool Erase(Sequence& sequence);
  // Who is next; null when nobody waits. Changes only when somebody is pushed, erased or charged.
  Sequence* Head();
  // Tokens that were computed for a tenant.
  void Charge(const Sequence& sequence, int32_t tokens);

  int32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // The one that came last, for which `wanted` is true; null: none.
  template <typename Wanted>
  Sequence* Youngest(Wanted wanted) const {
    Sequence* youngest = nullptr;
    for (const Account* account : turns_) {
      for (Sequence* sequence : account->waiting) {
        if (wanted(*sequence) && (youngest == nullptr || sequence->id > youngest->id)) {
          youngest = sequence;
        }
      }
    }
    return youngest;
  }

 private:
  struct Account {
    std::deque<Sequence*> waiting;  // by id
    std::string tenant;
    int64_t credit = 0;  // tokens
    int32_t open = 0;    // sequences
  };

  void TopUp();
  void CloseAccount(Account& account);
  void ForgetOldestDebt();

  const int32_t quantum_;
  absl::flat_hash_map<std::string, std::unique_ptr<Account>> accounts_;
  std::vector<Account*> turns_;  // in the order of their first arrival
  size_t turn_ = 0;
  int32_t debtors_ = 0;  // accounts without a sequence
  int32_t size_ = 0;
};

}  // namespace tessera::decode
