#include "services/gateway/http/output_queue.h"

namespace tessera::gateway::http {

void OutputQueue::Write(std::string bytes, std::shared_ptr<void> owner) {
  if (waiting_.empty()) {
    waiting_ = std::move(bytes);
  } else {
    waiting_ += bytes;
  }
  if (!writing_) Flush(std::move(owner));
}

void OutputQueue::Flush(std::shared_ptr<void> owner) {
  writing_ = true;
  current_ = std::exchange(waiting_, std::string());
  transport_.Write(boost::asio::buffer(current_),
                   [this, owner = std::move(owner)](boost::system::error_code error, size_t) {
                     writing_ = false;
                     if (!error && !waiting_.empty()) return Flush(owner);
                     written_(error);
                   });
}

}  // namespace tessera::gateway::http
