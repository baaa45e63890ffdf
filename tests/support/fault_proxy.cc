#include "tests/support/fault_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

namespace tessera::testing {

void FaultProxy::Set(const ProxyFaults& faults) {
  base::MutexLock lock(mutex_);
  faults_ = faults;
}

FaultProxy::Fault FaultProxy::Draw(size_t& place, absl::Duration& delay, size_t size) {
  base::MutexLock lock(mutex_);
  std::uniform_real_distribution<double> unit(0, 1);
  place = random_() % (8 * size);
  delay = faults_.most_delay * unit(random_);
  double draw = unit(random_);
  const std::pair<double, Fault> choices[] = {{faults_.cut, Fault::kCut},
                                              {faults_.truncate, Fault::kTruncate},
                                              {faults_.flip, Fault::kFlip},
                                              {faults_.reorder, Fault::kReorder},
                                              {faults_.delay, Fault::kDelay}};
  for (const auto& [chance, fault] : choices) {
    if (draw < chance) return fault;
    draw -= chance;
  }
  return Fault::kNone;
}

bool FaultProxy::Pass(int from, int to, std::string& kept_back) {
  std::string chunk(kChunk, '\0');
  const ssize_t got = recv(from, chunk.data(), chunk.size(), 0);
  if (got <= 0) return false;
  chunk.resize(static_cast<size_t>(got));
  size_t place = 0;
  absl::Duration delay;
  const Fault fault = Draw(place, delay, chunk.size());
  if (fault != Fault::kNone) ++faults_done_;
  if (fault == Fault::kCut) return false;
  if (fault == Fault::kTruncate) {
    SendAll(to, chunk.substr(0, chunk.size() / 2));
    return false;
  }
  if (fault == Fault::kFlip) chunk[place / 8] ^= static_cast<char>(1 << (place % 8));
  if (fault == Fault::kDelay) std::this_thread::sleep_for(absl::ToChronoMicroseconds(delay));
  if (fault == Fault::kReorder && kept_back.empty()) {
    kept_back = std::move(chunk);
    return true;
  }
  return SendAll(to, chunk + std::exchange(kept_back, ""));
}

void FaultProxy::Serve(int client) {
  const Fd server = ConnectTo(server_port_);
  if (!server.ok()) return;
  std::string late_to_server;
  std::string late_to_client;
  while (true) {
    pollfd ends[] = {{client, POLLIN, 0},
                     {hold_ ? -1 : server.get(), POLLIN, 0}};  // -1 is not looked at
    if (poll(ends, 2, 1) < 0) return;
    if (ends[0].revents != 0 && !Pass(client, server.get(), late_to_server)) return;
    if (ends[1].revents != 0 && !Pass(server.get(), client, late_to_client)) return;
  }
}

}  // namespace tessera::testing
