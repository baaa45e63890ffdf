#include "common/rpc/server.h"

#include <dlfcn.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/error.h"
#include "common/base/status_macros.h"

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

// gRPC takes a port modulo 65536; nobody means that.
absl::Status CheckAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 || port > 65535) {
    return base::BadField("address", "BAD_OPTION",
                          absl::StrCat("\"", address,
                                       "\" is no address: write host:port, port 0 "
                                       "takes a free one"));
  }
  return absl::OkStatus();
}

void AddConnectionArguments(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 30000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 10 * 60 * 1000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 130 * 1000);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerOptions& options, absl::Span<grpc::Service* const> services,
    const std::vector<std::string>& service_names) {
  if (options.reflection) RETURN_IF_ERROR(LoadReflection());
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  auto server = std::unique_ptr<Server>(new Server());
  server->service_names_ = service_names;
  if (!options.address.empty()) {
    RETURN_IF_ERROR(CheckAddress(options.address));
    builder.AddListeningPort(options.address, grpc::InsecureServerCredentials(), &server->port_);
  }
  AddConnectionArguments(builder);
  builder.SetMaxReceiveMessageSize(options.max_receive_bytes);
  for (grpc::Service* service : services) builder.RegisterService(service);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || (!options.address.empty() && server->port_ == 0)) {
    return base::Error(absl::StatusCode::kInvalidArgument, "ADDRESS_UNAVAILABLE",
                       absl::StrCat("cannot listen on ", options.address,
                                    ": the port is in use or the address is not of this machine"));
  }
  server->server_->GetHealthCheckService()->SetServingStatus("liveness", true);
  server->SetReady(true);
  return server;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

std::shared_ptr<grpc::Channel> Server::InProcessChannel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return server_->InProcessChannel(arguments);
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
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(deadline));
  server_->Wait();
  server_.reset();
}

}  // namespace tessera::rpc
