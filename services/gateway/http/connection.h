#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// Beast and Asio 1.74 use std::exchange without including it: <utility> stands before them.
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "services/gateway/admission/byte_budget.h"
#include "services/gateway/http/chat_call.h"
#include "services/gateway/http/http_error.h"
#include "services/gateway/http/http_message.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/pages.h"
#include "services/gateway/http/transport.h"

// For http_server.cc only.
namespace tessera::gateway::http {

// How many connections there are. Any thread.
class ConnectionCount {
 public:
  void Add(int more);
  int value() const { return value_.load(); }
  // Waits until there is none, at most `timeout`.
  void AwaitNone(absl::Duration timeout);

 private:
  std::atomic<int> value_{0};
  base::Mutex mutex_;
  base::CondVar none_;
};

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
  const std::atomic<bool>& draining;
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
  // Closed when it next has nothing to do.
  void Drain();
  // No whole head of a request has come, or all has been answered.
  bool IsIdle() const {
    return state_ == State::kHandshake || state_ == State::kHead || state_ == State::kLinger;
  }

 private:
  // kHead: between requests, too.
  enum class State { kHandshake, kHead, kBody, kAnswer, kLinger, kClosed };
  // What is known of the request that is being served.
  struct Request {
    std::string id;
    rpc::TraceContext trace;
    Route route = Route::kUnknown;
    std::string target;
    std::string tenant;
    bool head_only = false;
    bool http10 = false;
    bool keep_alive = false;
    bool stream = false;
    bool entered = false;  // the gateway below tells how it ends
    absl::Time arrival;
  };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  using SteadyTime = std::chrono::steady_clock::time_point;

  // Reading.
  void Read();
  void OnRead(const boost::system::error_code& error, size_t bytes);
  bool IsFull() const { return in_.size() + chunk_.size() > in_.max_size(); }
  void OnEndOfInput();
  void NextRequest();
  void Advance();
  bool Parse();  // whether to go on
  bool ParseBody(const boost::system::error_code& error);
  bool AccountBody();
  void TakeStartLine();
  void OnHead();
  bool AnswerAtHead();
  bool AnswerBeforeBody();
  // Answering.
  void StartChat();
  void OnWake();
  void SendNext();
  // A request that was not read far enough to have an id and an arrival gets them.
  void Introduce();
  void RefuseUnreadable(const boost::system::error_code& error);
  void Refuse(const absl::Status& status) { Send(ErrorResponse(ToHttpError(status))); }
  void Refuse(int status, const char* code, std::string message);
  void Send(const Response& response);
  Framing FramingOf(bool stream);
  void Write(std::string bytes);
  void Flush();
  void OnWritten(const boost::system::error_code& error);
  void Linger();
  void Tell(int status);
  // Time.
  void ExpireAfter(absl::Duration timeout);
  void ArmTimer();
  void OnTimer();

  const ConnectionDeps deps_;
  boost::asio::io_context& io_;
  const std::unique_ptr<Transport> transport_;
  Open& open_;
  std::optional<Open::iterator> place_;
  State state_ = State::kHandshake;

  std::array<char, 16 << 10> chunk_;  // being read into
  boost::beast::flat_buffer in_;      // read, not parsed
  std::optional<Parser> parser_;
  bool reading_ = false;
  bool begun_ = false;         // the request's first byte has come
  ByteBudget::Hold body_;      // of the request being read
  ByteBudget::Hold arriving_;  // likewise
  size_t lingered_ = 0;        // bytes

  Request request_;
  std::shared_ptr<ChatCall> call_;  // until its last word is taken
  bool answered_ = false;           // the request's last word is written, or being written
  std::string out_;                 // being written
  std::string queued_;              // behind it
  bool writing_ = false;

  boost::asio::steady_timer timer_;
  bool timing_ = false;
  SteadyTime deadline_ = SteadyTime::max();
};

}  // namespace tessera::gateway::http
