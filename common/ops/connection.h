#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// Beast 1.74 uses std::exchange without including it.
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "common/ops/handlers.h"
#include "common/ops/ops_options.h"

// For ops_server.cc only.
namespace tessera::ops {

// One client's connection. Lives as long as an operation of its socket is under way. The server's
// thread only.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Those that are open, the one that was silent longest first.
  using Open = std::list<Connection*>;

  Connection(boost::asio::ip::tcp::socket socket, const OpsOptions& options,
             const Handlers& handlers, Open& open);
  ~Connection();

  void Read();
  // What is under way ends.
  void Close();

 private:
  void OnHeader(boost::system::error_code error);
  void OnRequest();
  void Refuse(int status, std::string text);
  template <typename Response>
  void Write(Response& response);
  void OnWritten(boost::system::error_code error);
  void Discard();

  boost::beast::tcp_stream stream_;
  const OpsOptions& options_;
  const Handlers& handlers_;
  Open& open_;
  std::optional<Open::iterator> place_;
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::empty_body>> parser_;
  boost::beast::http::response<boost::beast::http::string_body> response_;
  boost::beast::http::response<boost::beast::http::empty_body> head_;
  size_t discarded_ = 0;  // bytes
};

}  // namespace tessera::ops
