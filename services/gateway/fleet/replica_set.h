#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/drain_rate.h"
#include "common/base/mutex.h"
#include "common/base/timers.h"
#include "services/gateway/fleet/decode_client.h"
#include "services/gateway/fleet/decode_peer.h"
#include "services/gateway/fleet/name_lookup.h"
#include "services/gateway/fleet/replica_calls.h"
#include "services/gateway/fleet/router.h"
#include "services/gateway/fleet/vision_client.h"

namespace tessera::gateway {

// What a replica says of itself.
struct ReplicaLoad {
  bool draining = false;
  bool full = false;
  bool broken = false;          // its device has failed, or its canary
  double pressure = 0;          // share of its room that is taken, 0 to 1
  int64_t free_tokens = 0;      // of its KV cache; decode only
  int64_t waiting = 0;          // requests that wait; decode only
  uint64_t requests_ended = 0;  // since its start; as a state: since the set heard of it first
};

// One process of a service, and how the gateway talks to it.
struct Replica {
  std::string name;                      // "10.0.0.3:9200"; empty in one process
  std::unique_ptr<VisionClient> vision;  // of the vision service
  std::unique_ptr<DecodePeer> decode;    // of the decode service

  using OnLoad = std::function<void(const ReplicaLoad&)>;
  using OnEnd = std::function<void(const absl::Status&)>;
  // A call that asks it for its load again and again, once it is begun. Both come on any thread,
  // OnEnd once, last: OK where it is to be asked anew and lives. Where there is none the replica is
  // always up.
  std::function<std::shared_ptr<Call>(absl::Duration interval, OnLoad on_load, OnEnd on_end)> watch;
};

// The use of a replica, which stays for it though it may be none of its set any more. Let go of it
// anywhere, but not with a lock that the ends of calls take.
using ReplicaLease = std::shared_ptr<Replica>;

struct ReplicaSetOptions {
  std::string service;                 // "vision" or "decode", for messages
  std::vector<std::string> addresses;  // "host:port"; every address of the host is a replica
  absl::Duration load_interval = absl::Milliseconds(250);
  absl::Duration load_silence = absl::Seconds(1);  // heard nothing for so long: taken out
  // Answers that have begun cannot go on elsewhere: so many times load_silence of a replica that is
  // out, and of their own stream, ends them.
  int begun_patience = 5;
  absl::Duration resolve_interval = absl::Seconds(5);
};

// A replica now.
struct ReplicaState {
  ReplicaView view;
  ReplicaLoad load;
};

// How a set reaches its replicas.
struct ReplicaHooks {
  // Addresses of "host:port", numeric. May block, and be called after the set is gone.
  // Null: addresses are names already.
  NameLookup::Resolve resolve;
  std::function<std::unique_ptr<Replica>(const std::string& name)> make;
  // All of them, whenever one has told of itself, came or went. May be null; on any thread, so that
  // an older state may come behind a newer one, of a higher number.
  std::function<void(const std::vector<ReplicaState>&, uint64_t number)> on_change;
};

// The replicas of one service: who they are, who lives, who gets the next request. Any thread.
class ReplicaSet {
 public:
  // Resolves in the background, at once and then again and again; an address that cannot be
  // resolved keeps the replicas that it had. `clock` outlives the set.
  ReplicaSet(ReplicaSetOptions options, ReplicaHooks hooks, base::Clock& clock);
  // Waits for the leases of its replicas.
  ~ReplicaSet();
  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;

  struct Picked {
    ReplicaLease replica;
    std::string reason;
    bool redirected = false;
  };
  // UNAVAILABLE (VISION_DOWN, DECODE_DOWN) or RESOURCE_EXHAUSTED (QUEUE_FULL), both with a retry.
  // As ChooseReplica chooses.
  absl::StatusOr<Picked> Pick(absl::string_view affinity, absl::Span<const std::string> tried = {},
                              absl::Duration patience = absl::InfiniteDuration());
  DecodeWaits Waits(absl::string_view affinity);

  // `call` is cancelled when its replica is taken out for its silence and the call is silent, too,
  // unless it has ended.
  void CancelWithReplica(const std::string& name, const std::shared_ptr<Call>& call);

  // In the order of the addresses.
  std::vector<ReplicaState> States();

  // How many changes there were: a replica has told of itself, came or went.
  uint64_t changes();
  // Waits until there were more than `seen`, but at most `timeout`; how many there are.
  uint64_t AwaitChange(uint64_t seen, absl::Duration timeout);

 private:
  // A replica and its leases, counted with mutex_.
  struct Leased {
    std::unique_ptr<Replica> replica;
    int leases = 0;
    bool gone = false;  // no replica any more: it goes when leases does
  };
  struct Member {
    std::unique_ptr<Leased> leased;
    bool up = false;
    bool silent = false;  // taken out for that
    ReplicaLoad load;
    uint64_t ended = 0;   // requests, since it was first heard of
    uint64_t picked = 0;  // for requests, since its last word
    base::DrainRate rate;
    absl::Time heard = absl::InfinitePast();
    uint64_t watch_number = 0;  // of the watch under way; what an older one says is ignored
    std::shared_ptr<Call> watch;
    ReplicaCalls calls;
  };
  using Calls = std::vector<std::shared_ptr<Call>>;

  ReplicaLease Lease(Leased& leased) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Return(Leased& leased);
  void PutAway(std::unique_ptr<Leased> leased) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasUnused() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the gone ones that nobody uses. Waits for their last calls to be forgotten.
  void SweepGone();
  void ResolveLoop();
  // Whether each address has been looked up, if in vain.
  bool Resolve();
  void Adopt(const std::vector<std::string>& names);
  void StartWatch(const std::string& name);
  void OnLoad(const std::string& name, uint64_t watch, const ReplicaLoad& load);
  void OnWatchEnd(const std::string& name, uint64_t watch, const absl::Status& status);
  void CheckSilence();
  std::vector<ReplicaView> Views() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<ReplicaState> StatesNow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Wakes who waits for a change. Its number.
  uint64_t CountChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellOfChange();

  const ReplicaSetOptions options_;
  const ReplicaHooks hooks_;
  base::Clock& clock_;

  mutable base::Mutex mutex_;
  base::CondVar work_;                                      // for the set's own thread and end
  base::CondVar changed_;                                   // for who awaits a change
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);  // in the order of the addresses
  absl::flat_hash_map<std::string, Member> members_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::vector<std::string>> resolved_ ABSL_GUARDED_BY(mutex_);
  // No replicas any more; kept while leased, for who lets go last would wait for himself.
  std::vector<std::unique_ptr<Leased>> gone_ ABSL_GUARDED_BY(mutex_);
  uint64_t watches_ ABSL_GUARDED_BY(mutex_) = 0;
  int watching_ ABSL_GUARDED_BY(mutex_) = 0;  // watches whose end has not come
  absl::Time check_due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // of silence
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  NameLookup lookup_;
  std::unique_ptr<base::Timers> timers_;  // before the thread, which may add replicas
  std::thread resolver_;
};

}  // namespace tessera::gateway
