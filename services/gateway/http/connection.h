#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// Asio 1.74 uses std::exchange without including it: <utility> stands before it.
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include "services/gateway/admission/byte_budget.h"
#include "services/gateway/http/chat_call.h"
#include "services/gateway/http/connection_count.h"
#include "services/gateway/http/deadline.h"
#include "services/gateway/http/http_deps.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/http_options.h"
#include "services/gateway/http/output_queue.h"
#include "services/gateway/http/pages.h"
#include "services/gateway/http/request_head.h"
#include "services/gateway/http/request_reader.h"
#include "services/gateway/http/transport.h"

// For http_server.cc only.
namespace tessera::gateway::http {

// What all connections use; outlives them.
struct ConnectionDeps {
  const HttpOptions& options;
  const ChatDeps& chat;
  const PageFacts& pages;
  const TenantResolver& tenant;
  const std::function<void(const HttpDone&)>& done;
  ByteBudget& bodies;
  ByteBudget& arriving;  // connections whose request is not all here
  boost::asio::thread_pool& parsers;
  const std::atomic<bool>& ending;  // answers end their connections
  ConnectionCount& count;
};

// One client's connection: requests one after another, those that came early in their order. A read
// is always under way, so that a client that goes is noticed at once. The thread of `io` only.
// Lives as long as an operation of it is under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Open = std::list<Connection*>;

  // Stands in `open` until it is closed, behind those that have been idle for longer.
  Connection(std::unique_ptr<Transport> transport, boost::asio::io_context& io,
             const ConnectionDeps& deps, Open& open);
  ~Connection();

  void Start();
  // At once; an answer under way is cancelled.
  void Close();
  // Closed where no request has begun to come; else its answer ends it.
  void Drain();
  // No whole head of a request has come, or all has been answered.
  bool IsIdle() const {
    return state_ == State::kHandshake || state_ == State::kHead || state_ == State::kLinger;
  }

 private:
  // kHead: between requests, too.
  enum class State { kHandshake, kHead, kBody, kAnswer, kLinger, kClosed };

  // What comes in.
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  void OnEndOfInput();
  void NextRequest();
  void Advance();
  void OnHead();
  bool AccountBody();
  // The answer.
  void StartChat();
  void OnWake();
  void SendNext();
  Response UnreadableResponse();
  void Send(const Response& response);
  Framing FramingOf(bool stream);
  void OnWritten(const boost::system::error_code& error);
  void Linger();
  void Tell(int status);
  void OnDeadline();
  void IntroduceRequest();
  void Write(std::string bytes) { output_.Write(std::move(bytes), shared_from_this()); }
  void ExpireAfter(absl::Duration timeout) { deadline_.SetAfter(timeout, shared_from_this()); }

  const ConnectionDeps deps_;
  boost::asio::io_context& io_;
  const std::unique_ptr<Transport> transport_;
  Open& open_;
  std::optional<Open::iterator> place_;
  State state_ = State::kHandshake;

  RequestReader reader_;
  OutputQueue output_;
  Deadline deadline_;
  bool reading_ = false;
  size_t lingered_ = 0;  // bytes

  ByteBudget::Hold body_hold_;      // of the request being read
  ByteBudget::Hold arriving_hold_;  // a place among the requests that are on their way
  Request request_;
  std::shared_ptr<ChatCall> call_;  // until its last word is taken
  bool answered_ = false;           // the request's last word is written, or being written
};

}  // namespace tessera::gateway::http
