#pragma once

#include <functional>
#include <memory>
#include <utility>

// Beast and Asio 1.74 use std::exchange without including it: <utility> stands before them.
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>

namespace tessera::gateway::http {

// The bytes of one connection, plain or TLS. One thread; at most one read and one write are under
// way. What its functions are given is called later, never before they return.
class Transport {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;

  virtual ~Transport() = default;
  // Once, before anything else.
  virtual void Handshake(std::function<void(boost::system::error_code)> done) = 0;
  // Some bytes. `to` lives until `done`.
  virtual void Read(boost::asio::mutable_buffer to, Done done) = 0;
  // All of them. `from` lives until `done`.
  virtual void Write(boost::asio::const_buffer from, Done done) = 0;
  // Nothing more will be written; reads go on.
  virtual void EndWrites() = 0;
  // What is under way ends with an error.
  virtual void Close() = 0;
};

std::unique_ptr<Transport> MakePlainTransport(boost::asio::ip::tcp::socket socket);
std::unique_ptr<Transport> MakeTlsTransport(boost::asio::ip::tcp::socket socket,
                                            std::shared_ptr<boost::asio::ssl::context> context);

}  // namespace tessera::gateway::http
