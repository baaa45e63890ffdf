#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "services/gateway/http/transport.h"

namespace tessera::gateway::http {

// What a connection writes: one write at a time, and behind it what came meanwhile. The thread of
// the transport only.
class OutputQueue {
 public:
  // `written`: all that was given is, or it failed. `transport` outlives this.
  OutputQueue(Transport& transport, std::function<void(boost::system::error_code)> written)
      : transport_(transport), written_(std::move(written)) {}

  // `owner` owns this, and lives while a write is under way.
  void Write(std::string bytes, std::shared_ptr<void> owner);
  bool writing() const { return writing_; }

 private:
  void Flush(std::shared_ptr<void> owner);

  Transport& transport_;
  const std::function<void(boost::system::error_code)> written_;
  std::string current_;  // being written
  std::string waiting_;  // behind it
  bool writing_ = false;
};

}  // namespace tessera::gateway::http
