#include "services/gateway/http/transport.h"

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

namespace tessera::gateway::http {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(tcp::socket socket) : socket_(std::move(socket)) {}

  void Handshake(std::function<void(error_code)> done) override {
    boost::asio::post(socket_.get_executor(), [done = std::move(done)] { done({}); });
  }
  void Read(boost::asio::mutable_buffer to, Done done) override {
    socket_.async_read_some(to, std::move(done));
  }
  void Write(boost::asio::const_buffer from, Done done) override {
    boost::asio::async_write(socket_, from, std::move(done));
  }
  void EndWrites() override {
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  void Close() override {
    error_code ignored;
    socket_.close(ignored);
  }

 private:
  tcp::socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(tcp::socket socket, std::shared_ptr<boost::asio::ssl::context> context)
      : context_(std::move(context)),
        stream_(std::make_shared<Stream>(std::move(socket), *context_)) {}

  void Handshake(std::function<void(error_code)> done) override {
    stream_->async_handshake(Stream::server, std::move(done));
  }
  void Read(boost::asio::mutable_buffer to, Done done) override {
    stream_->async_read_some(to, std::move(done));
  }
  void Write(boost::asio::const_buffer from, Done done) override {
    boost::asio::async_write(*stream_, from, std::move(done));
  }
  // The other side's close_notify is not waited for: whoever lingers closes.
  void EndWrites() override {
    stream_->async_shutdown([stream = stream_, context = context_](error_code) {});
  }
  void Close() override {
    error_code ignored;
    stream_->next_layer().close(ignored);
  }

 private:
  using Stream = boost::asio::ssl::stream<tcp::socket>;
  const std::shared_ptr<boost::asio::ssl::context> context_;
  const std::shared_ptr<Stream> stream_;  // its shutdown may outlive this
};

}  // namespace

std::unique_ptr<Transport> MakePlainTransport(tcp::socket socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

std::unique_ptr<Transport> MakeTlsTransport(tcp::socket socket,
                                            std::shared_ptr<boost::asio::ssl::context> context) {
  return std::make_unique<TlsTransport>(std::move(socket), std::move(context));
}

}  // namespace tessera::gateway::http
