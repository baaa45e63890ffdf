#include "common/ops/ops_server.h"

#include <utility>

#include "common/ops/connection.h"
// Behind connection.h, which includes what Beast forgot.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <exception>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

namespace tessera::ops {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr int kSendBytes = 64 << 10;                    // of a socket in the kernel
constexpr std::chrono::milliseconds kAcceptPause(100);  // when there is no file for a connection

absl::Status NoAddress(const std::string& address) {
  return base::BadField("ops_address", "BAD_OPTION",
                        absl::StrCat("\"", address, "\" is no address: write host:port"));
}

absl::Status Unavailable(const std::string& address, const error_code& error) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, "ADDRESS_UNAVAILABLE",
      absl::StrCat("cannot listen on ", address, " (--ops_address): ", error.message()));
}

absl::StatusOr<tcp::endpoint> Resolve(const std::string& address, boost::asio::io_context& io) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return NoAddress(address);
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  error_code error;
  const auto found = tcp::resolver(io).resolve(host, absl::StrCat(port), error);
  if (error || found.empty()) return Unavailable(address, error);
  return found.begin()->endpoint();
}

}  // namespace

// In the order of birth: handlers of what is under way die with `io`, and use what is above it.
struct OpsServer::Listener {
  OpsOptions options;
  Handlers handlers;
  Connection::Open open;
  boost::asio::io_context io{1};
  tcp::acceptor acceptor{io};
  boost::asio::steady_timer pause{io};
  int port = 0;
  std::thread thread;

  absl::Status Listen();
  void Accept();
  void OnAccepted(error_code error, tcp::socket socket);
};

absl::Status OpsServer::Listener::Listen() {
  ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(options.address, io));
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  // Over connections that linger; a port that somebody listens on stays taken.
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  // Accepted sockets have it, too: who asks for page after page and reads none has few made for
  // him.
  if (!error) acceptor.set_option(tcp::acceptor::send_buffer_size(kSendBytes), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (!error) port = acceptor.local_endpoint(error).port();
  return error ? Unavailable(options.address, error) : absl::OkStatus();
}

void OpsServer::Listener::Accept() {
  acceptor.async_accept(
      [this](error_code error, tcp::socket socket) { OnAccepted(error, std::move(socket)); });
}

void OpsServer::Listener::OnAccepted(error_code error, tcp::socket socket) {
  if (error) {
    pause.expires_after(kAcceptPause);
    pause.async_wait([this](error_code) { Accept(); });
    return;
  }
  if (open.size() >= options.max_connections) open.front()->Close();
  std::make_shared<Connection>(std::move(socket), options, handlers, open)->Read();
  Accept();
}

absl::StatusOr<std::unique_ptr<OpsServer>> OpsServer::Start(OpsOptions options, Handlers handlers) {
  try {  // Asio throws where the machine has no more files or threads
    auto listener = std::make_unique<Listener>();
    listener->options = std::move(options);
    listener->handlers = std::move(handlers);
    RETURN_IF_ERROR(listener->Listen());
    listener->Accept();
    listener->thread = std::thread([io = &listener->io] { io->run(); });
    return std::unique_ptr<OpsServer>(new OpsServer(std::move(listener)));
  } catch (const std::exception& e) {
    return absl::ResourceExhaustedError(absl::StrCat("the operations port: ", e.what()));
  }
}

OpsServer::OpsServer(std::unique_ptr<Listener> listener) : listener_(std::move(listener)) {}

OpsServer::~OpsServer() {
  listener_->io.stop();
  listener_->thread.join();
}

int OpsServer::port() const { return listener_->port; }

}  // namespace tessera::ops
