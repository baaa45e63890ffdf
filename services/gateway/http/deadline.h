#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "absl/time/time.h"

namespace tessera::gateway::http {

// When the patience with a connection ends. The thread of `io` only.
class Deadline {
 public:
  // `passed` is called at most once for each deadline, while its owner lives.
  Deadline(boost::asio::io_context& io, std::function<void()> passed)
      : timer_(io), passed_(std::move(passed)) {}

  // From now on. `owner` owns this, and lives while it is waited for.
  void SetAfter(absl::Duration timeout, std::shared_ptr<void> owner);
  // A later end of the deadline that is set, if there is one.
  void Extend(absl::Duration more);
  // No deadline.
  void Clear() { end_ = SteadyTime::max(); }
  // For good.
  void Cancel();

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void Wait(std::shared_ptr<void> owner);
  void OnTimer(std::shared_ptr<void> owner);

  boost::asio::steady_timer timer_;
  const std::function<void()> passed_;
  bool waiting_ = false;
  bool cancelled_ = false;
  SteadyTime end_ = SteadyTime::max();
};

}  // namespace tessera::gateway::http
