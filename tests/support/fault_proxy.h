#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "tests/support/peer.h"

namespace tessera::testing {

// What goes wrong with a chunk of up to FaultProxy::kChunk bytes, as probabilities; the first that
// is drawn is done.
struct ProxyFaults {
  double cut = 0;       // the connection ends before it
  double truncate = 0;  // half of it is passed on, then the connection ends
  double flip = 0;      // one bit
  double reorder = 0;   // it comes after the next one of its direction
  double delay = 0;     // it comes later, by up to most_delay
  absl::Duration most_delay = absl::Milliseconds(5);
};

// Stands between a client and a server on 127.0.0.1 and passes on what they say, more or less.
// Seeded; threads make the order differ. Any thread.
class FaultProxy {
 public:
  static constexpr size_t kChunk = 1000;

  FaultProxy(int server_port, uint64_t seed)
      : server_port_(server_port), random_(seed), peer_([this](int fd) { Serve(fd); }) {}
  ~FaultProxy() { Hold(false); }

  int port() const { return peer_.port(); }
  void Set(const ProxyFaults& faults);
  // While held, what the server says is kept; then it is passed on.
  void Hold(bool hold) { hold_ = hold; }
  // Ends all connections of now.
  void HangUp() { peer_.HangUp(); }
  // Chunks that something was done to.
  int faults() const { return faults_done_; }

 private:
  enum class Fault { kNone, kCut, kTruncate, kFlip, kReorder, kDelay };

  void Serve(int client);
  // One chunk from `from` to `to`; false: the connection is over.
  bool Pass(int from, int to, std::string& kept_back);
  Fault Draw(size_t& place, absl::Duration& delay, size_t size);

  const int server_port_;
  std::atomic<bool> hold_ = false;
  std::atomic<int> faults_done_ = 0;
  base::Mutex mutex_;
  ProxyFaults faults_ ABSL_GUARDED_BY(mutex_);
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  Peer peer_;  // its threads use what is above
};

}  // namespace tessera::testing
