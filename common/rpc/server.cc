#include "common/rpc/server.h"

#include <dlfcn.h>
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"
#include "common/rpc/bad_message.h"
#include "common/rpc/call_metrics.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_locks.h"
#include "common/rpc/socket_pair.h"

namespace tessera::rpc {
namespace {

// The reflection library switches reflection on in every server of the process as soon as it is
// loaded, so it is not linked: a flag could not switch it off again.
absl::Status LoadReflection() {
  static void* const library = dlopen("libgrpc++_reflection.so.1.51", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return base::BadField("reflection", "REFLECTION_UNAVAILABLE",
                          "libgrpc++_reflection.so.1.51 cannot be loaded; start without "
                          "--reflection or install the gRPC runtime package");
  }
  return absl::OkStatus();
}

static_assert(kKeepaliveTaken < kKeepalive, "our own clients would be cut off");

// Of all that is being received. Messages are read before a handler sees who sends them, so clients
// who begin many and end none would have all memory; beyond this gRPC cuts calls.
void LimitReceiving(const ServerOptions& options, grpc::ServerBuilder& builder) {
  constexpr size_t kLargestMessages = 16;
  grpc::ResourceQuota quota("server");
  quota.Resize(kLargestMessages * static_cast<size_t>(options.max_receive_bytes));
  builder.SetResourceQuota(quota);
}

// A connection inside the process is made once and stays.
void AddConnectionArguments(const ServerOptions& options, grpc::ServerBuilder& builder) {
  if (options.address.empty()) return;
  // Who connects and says nothing goes: every file that he holds is missing elsewhere.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20 * 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             absl::ToInt64Milliseconds(options.keepalive_taken));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             absl::ToInt64Milliseconds(options.connection_idle));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 10 * 60 * 1000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             absl::ToInt64Milliseconds(kLongestCall + absl::Seconds(10)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, absl::Span<grpc::Service* const> services,
    const std::vector<std::string>& service_names) {
  StopSearchForDeadlocks();
  if (options.reflection) RETURN_IF_ERROR(LoadReflection());
  grpc::EnableDefaultHealthCheckService(true);
  // What a client sent and cannot be parsed is told to the client, not to the log.
  google::protobuf::SetLogHandler(nullptr);
  grpc::ServerBuilder builder;
  auto server = std::unique_ptr<Server>(new Server());
  server->service_names_ = service_names;
  if (!options.address.empty()) {
    RETURN_IF_ERROR(CheckAddress(options.address));
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (!options.tls.empty()) {
      ASSIGN_OR_RETURN(server->tls_, ServerTls::Create(options.tls));
      credentials = server->tls_->credentials();
    }
    ASSIGN_OR_RETURN(server->listener_, Listener::Listen(options.address));
    server->connections_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  }
  AddConnectionArguments(options, builder);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  LimitReceiving(options, builder);
  // gRPC inflates all of a message before it looks at its size: a small one may become gigabytes.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(MakeBadMessageInterceptor());
  if (options.metrics != nullptr) {  // last: sees the status that the client gets
    interceptors.push_back(
        MakeCallMetricsInterceptor(*options.metrics, base::RealClock(), service_names));
  }
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  for (grpc::Service* service : services) builder.RegisterService(service);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr) return absl::InternalError("gRPC could not be started");
  server->server_->GetHealthCheckService()->SetServingStatus("liveness", true);
  server->SetReady(options.ready);
  if (server->listener_ != nullptr) {
    server->listener_->Start([connections = server->connections_.get()](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      connections->HandleNewConnection(&connection);
    });
  }
  return server;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  // gRPC 1.51's own in-process transport keeps some 30 kB of every call whose server ends before
  // its client.
  const absl::StatusOr<std::pair<int, int>> ends = ConnectedSockets();
  CHECK(ends.ok());
  grpc::AddInsecureChannelFromFd(server_.get(), ends->first);
  return grpc::CreateCustomInsecureChannelFromFd("in-process", ends->second, BasicArguments({}));
}

void Server::SetReady(bool ready) {
  if (server_ == nullptr) return;
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", ready);
  health->SetServingStatus("readiness", ready);
  for (const std::string& name : service_names_) health->SetServingStatus(name, ready);
}

void Server::Shutdown(absl::Duration deadline) {
  if (server_ == nullptr) return;
  SetReady(false);
  if (listener_ != nullptr) listener_->Stop();
  // An infinite one would overflow what the clock counts in.
  const absl::Duration wait = std::min(deadline, absl::Hours(24 * 365));
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(wait));
  server_->Wait();
  base::MutexLock lock(end_);
  server_.reset();
}

void Server::EndCalls() {
  base::MutexLock lock(end_);
  if (server_ != nullptr) grpc_server_cancel_all_calls(server_->c_server());
}

}  // namespace tessera::rpc
