#include "services/gateway/http/http_server.h"

#include <utility>

#include "services/gateway/http/connection.h"
// Behind connection.h, which includes what Asio forgot.
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <future>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "services/gateway/http/tls_context.h"

namespace tessera::gateway::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kIdleAtOnce = 16;
constexpr std::chrono::milliseconds kAcceptPause(100);  // when there is no file for a connection

absl::Status Unavailable(const std::string& address, const error_code& error) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, "ADDRESS_UNAVAILABLE",
      absl::StrCat("cannot listen on ", address, " (--http_address): ", error.message()));
}

absl::StatusOr<tcp::endpoint> Resolve(const std::string& address, asio::io_context& io) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return base::BadField(
        "http_address", "BAD_OPTION",
        absl::StrCat("--http_address \"", address, "\" is no address: write host:port"));
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

// A thread and the connections that are its own.
struct Loop {
  Connection::Open open;
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  std::thread thread;

  void Run() {
    while (true) {
      try {
        io.run();
        return;
      } catch (const std::exception& e) {  // for want of memory; its connection is closed by now
        base::Log(base::LogLevel::kError, absl::StrCat("HTTP: ", e.what()));
      }
    }
  }
  // Those that have been idle for longest make room, if there are any: they are cheap to open, so
  // that they would keep out those who ask. Some at once: a new one that has the number of one of
  // the last files keeps it, so that room for one alone would not last. Its thread only.
  bool CloseIdle() {
    int closed = 0;
    for (auto next = open.begin(); next != open.end() && closed < kIdleAtOnce;) {
      Connection* connection = *next++;
      if (!connection->IsIdle()) continue;
      connection->Close();
      ++closed;
    }
    return closed > 0;
  }
  // On each connection, which may leave `open` meanwhile; returns when it is done. Not its thread.
  void Each(void (Connection::*what)()) {
    std::promise<void> done;
    asio::post(io, [this, what, &done] {
      for (auto next = open.begin(); next != open.end();) ((*next++)->*what)();
      done.set_value();
    });
    done.get_future().wait();
  }
};

}  // namespace

// In the order of birth: what dies later is used by what is below it.
struct HttpServer::Port {
  Port(HttpOptions http_options, HttpDeps http_deps)
      : options(std::move(http_options)),
        deps(std::move(http_deps)),
        timers(deps.api.answer.clock) {}

  absl::Status Prepare();
  absl::Status Listen();
  void Accept();
  void OnAccepted(const error_code& error, tcp::socket socket, Loop& loop);
  bool IsFull(tcp::socket& socket) const;
  void Open(tcp::socket socket, const std::shared_ptr<asio::ssl::context>& context, Loop& loop);
  void RefuseConnection(tcp::socket socket);
  void StopListening();
  void Shutdown(absl::Duration grace);

  const HttpOptions options;
  const HttpDeps deps;
  PageFacts pages;
  base::Timers timers;
  std::optional<ByteBudget> bodies, arriving;
  std::atomic<bool> ending{false};
  std::atomic<bool> draining{false};  // no connection is taken
  ConnectionCount count;
  std::unique_ptr<TlsContext> tls;
  std::vector<std::unique_ptr<Loop>> loops;  // calls that have lost their connection post to them
  std::optional<rpc::CallTracker> tracker;
  std::unique_ptr<ImageFetcher> fetcher;
  std::optional<ChatDeps> chat;
  std::optional<asio::thread_pool> parsers;
  std::optional<ConnectionDeps> connection;
  std::optional<tcp::acceptor> acceptor;    // of the first loop
  std::optional<asio::steady_timer> pause;  // of the first loop
  size_t next_loop = 0;
  int number = 0;  // of the port
  bool stopped = false;
};

absl::Status HttpServer::Port::Prepare() {
  const ApiOptions& gateway = deps.api.options;
  if (!options.tls_certificate.empty()) {
    ASSIGN_OR_RETURN(
        tls, TlsContext::Create({options.tls_certificate, options.tls_key, options.tls_client_ca}));
  }
  if (!options.image_url_hosts.empty()) {
    FetchOptions fetch;
    fetch.hosts = options.image_url_hosts;
    fetch.max_bytes = gateway.max_image_bytes;
    fetch.tenant_share = gateway.share();
    fetch.loopback_port = options.image_url_loopback_port;
    ASSIGN_OR_RETURN(fetcher, ImageFetcher::Create(std::move(fetch)));
  }
  pages = {gateway.model_name, absl::ToUnixSeconds(deps.api.answer.clock.WallTime()),
           deps.model.context_tokens(), deps.version, deps.health};
  bodies.emplace(gateway.body_limits(options.max_bodies_bytes));
  arriving.emplace(gateway.arriving_limits(options.max_connections));
  tracker.emplace();
  ChatLimits limits;
  limits.max_bytes = gateway.max_message_bytes;
  limits.max_image_bytes = gateway.max_image_bytes;
  limits.context_tokens = deps.model.context_tokens();
  limits.image_urls = fetcher != nullptr;
  chat.emplace(ChatDeps{gateway, deps.api.answer, timers, *tracker, limits, fetcher.get()});
  parsers.emplace(static_cast<size_t>(options.parse_threads));
  connection.emplace(ConnectionDeps{options, *chat, pages, deps.tenant, deps.done, *bodies,
                                    *arriving, *parsers, ending, count});
  for (int i = 0; i < options.threads; ++i) loops.push_back(std::make_unique<Loop>());
  return absl::OkStatus();
}

absl::Status HttpServer::Port::Listen() {
  asio::io_context& io = loops[0]->io;
  ASSIGN_OR_RETURN(const tcp::endpoint endpoint, Resolve(options.address, io));
  acceptor.emplace(io);
  pause.emplace(io);
  error_code error;
  acceptor->open(endpoint.protocol(), error);
  // Over connections that linger; a port that somebody listens on stays taken.
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error && options.send_buffer_bytes > 0) {  // accepted sockets have it, too
    acceptor->set_option(asio::socket_base::send_buffer_size(options.send_buffer_bytes), error);
  }
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(tcp::acceptor::max_listen_connections, error);
  if (!error) number = acceptor->local_endpoint(error).port();
  return error ? Unavailable(options.address, error) : absl::OkStatus();
}

void HttpServer::Port::Accept() {
  if (draining.load()) return;
  Loop& loop = *loops[next_loop++ % loops.size()];
  acceptor->async_accept(loop.io, [this, &loop](error_code error, tcp::socket socket) {
    OnAccepted(error, std::move(socket), loop);
  });
}

void HttpServer::Port::OnAccepted(const error_code& error, tcp::socket socket, Loop& loop) {
  if (draining.load()) return;
  if (error) {  // as a rule there is no file for it
    for (const auto& each : loops) asio::post(each->io, [&each = *each] { each.CloseIdle(); });
    pause->expires_after(kAcceptPause);
    pause->async_wait([this](error_code cancelled) {
      if (!cancelled && !draining.load()) Accept();
    });
    return;
  }
  // Others are not accepted meanwhile: they would take the last files before one has made room.
  const bool full = IsFull(socket);
  std::shared_ptr<asio::ssl::context> context = tls ? tls->Get(base::RealClock().Now()) : nullptr;
  asio::post(loop.io, [this, &loop, full, context, socket = std::move(socket)]() mutable {
    if (draining.load()) return;
    if (!full || loop.CloseIdle()) {
      Open(std::move(socket), context, loop);
    } else {
      RefuseConnection(std::move(socket));
    }
    if (full) asio::post(loops[0]->io, [this] { Accept(); });
  });
  if (!full) Accept();
}

void HttpServer::Port::Open(tcp::socket socket, const std::shared_ptr<asio::ssl::context>& context,
                            Loop& loop) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  auto transport = context ? MakeTlsTransport(std::move(socket), context)
                           : MakePlainTransport(std::move(socket));
  std::make_shared<Connection>(std::move(transport), loop.io, *connection, loop.open)->Start();
}

bool HttpServer::Port::IsFull(tcp::socket& socket) const {
  return static_cast<size_t>(count.value()) >= options.max_connections ||
         socket.native_handle() >= base::FilesForConnections(base::kHttpFiles);
}

// Told in one go, before anything is read; who speaks TLS sees the end only.
void HttpServer::Port::RefuseConnection(tcp::socket socket) {
  if (tls) return;
  const Response response = ErrorResponse(ToHttpError(base::Error(
      absl::StatusCode::kUnavailable, "CONNECTIONS_FULL",
      absl::StrCat(options.max_connections, " connections are open, which is the limit"))));
  Framing framing;
  framing.keep_alive = false;
  const std::string id = rpc::NewRequestId();
  framing.request_id = id;
  framing.now = deps.api.answer.clock.WallTime();
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(Serialize(response, framing)), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpServer::Port::StopListening() {
  ending.store(true);
  if (draining.exchange(true)) return;
  if (acceptor) {
    asio::post(loops[0]->io, [this] {
      error_code ignored;
      acceptor->close(ignored);
      pause->cancel();
    });
  }
  for (const auto& loop : loops) {
    if (loop->thread.joinable()) loop->Each(&Connection::Drain);
  }
}

void HttpServer::Port::Shutdown(absl::Duration grace) {
  if (std::exchange(stopped, true)) return;
  StopListening();
  count.AwaitNone(grace);
  for (const auto& loop : loops) {
    if (loop->thread.joinable()) loop->Each(&Connection::Close);
  }
  count.AwaitNone(absl::InfiniteDuration());
  for (const auto& loop : loops) {
    loop->guard.reset();
    if (loop->thread.joinable()) loop->thread.join();
  }
  if (parsers) parsers->join();
  fetcher.reset();
  tracker.reset();  // waits for the answers
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options, HttpDeps deps) {
  RETURN_IF_ERROR(options.Validate());
  try {  // Asio throws where the machine has no more files or threads
    auto server = std::unique_ptr<HttpServer>(
        new HttpServer(std::make_unique<Port>(std::move(options), std::move(deps))));
    Port& port = *server->port_;
    RETURN_IF_ERROR(port.Prepare());
    RETURN_IF_ERROR(port.Listen());
    for (const auto& loop : port.loops) {
      loop->thread = std::thread([loop = loop.get()] { loop->Run(); });
    }
    asio::post(port.loops[0]->io, [&port] { port.Accept(); });
    return server;
  } catch (const std::exception& e) {
    return absl::ResourceExhaustedError(absl::StrCat("the HTTP port: ", e.what()));
  }
}

HttpServer::HttpServer(std::unique_ptr<Port> port) : port_(std::move(port)) {}

HttpServer::~HttpServer() { Shutdown(absl::ZeroDuration()); }

int HttpServer::port() const { return port_->number; }

int HttpServer::connections() const { return port_->count.value(); }

void HttpServer::AnnounceEnd() { port_->ending.store(true); }

void HttpServer::StopListening() { port_->StopListening(); }

void HttpServer::Shutdown(absl::Duration grace) { port_->Shutdown(grace); }

}  // namespace tessera::gateway::http
