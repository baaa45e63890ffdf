#include "common/service/inner_process.h"

#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/ops/stop_signal.h"
#include "common/rpc/call_limits.h"
#include "common/rpc/resolve.h"
#include "common/rpc/server.h"

namespace tessera::service {
namespace {

constexpr int kMessageBytes = 64 << 20;  // pictures and rows come in chunks far below
constexpr absl::Duration kLookInterval = absl::Seconds(1);  // at readiness
constexpr int64_t kLooksPerLoad = 10;                       // a line of the load

absl::StatusOr<std::unique_ptr<rpc::Server>> Serve(const InnerOptions& options,
                                                   const InnerNames& names, Process& process,
                                                   InnerService& service) {
  const rpc::ServerOptions server_options = {.address = options.process.grpc_address,
                                             .max_receive_bytes = kMessageBytes,
                                             .reflection = options.reflection,
                                             .metrics = &process.metrics(),
                                             .tls = options.access.tls,
                                             .ready = service.canary().status.ok()};
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::Server> server,
                   rpc::Server::Start(server_options, {service.grpc_service()}, {names.service}));
  process.state().SetCanary(service.canary().present, service.canary().status);
  process.state().SetLoaded();
  return server;
}

}  // namespace

absl::Status RunInner(const InnerOptions& options, const InnerNames& names,
                      const std::vector<std::string>& changed,
                      std::unique_ptr<InnerService> given) {
  ops::StopSignal stop;  // before any thread
  const std::string& address = options.process.grpc_address;
  RETURN_IF_ERROR(rpc::CheckInnerExposure(options.access, address));
  RETURN_IF_ERROR(rpc::CheckFree("grpc_address", address));
  // What is below uses what is above.
  ASSIGN_OR_RETURN(const std::unique_ptr<Process> process, Process::Create(options.process));
  base::ComputePool pool(options.threads > 0 ? options.threads
                                             : base::ComputePool::AvailableCpus());
  ASSIGN_OR_RETURN(const std::unique_ptr<store::StoreSet> stores,
                   store::StoreSet::Create(options.store, process->metrics()));
  const std::unique_ptr<InnerService> service = std::move(given);
  std::unique_ptr<rpc::Server> server;
  ASSIGN_OR_RETURN(const std::unique_ptr<ops::OpsServer> ops,
                   process->Listen(service->MakePages()));
  {
    const ops::StopSignal::EndsProcess ends(stop);
    RETURN_IF_ERROR(service->Load({*process, pool, *stores}));
    ASSIGN_OR_RETURN(server, Serve(options, names, *process, *service));
  }
  std::cout << names.program << "\n  changed flags   " << absl::StrJoin(changed, " ") << "\n"
            << service->Report() << "\n  gRPC            " << WithPort(address, server->port())
            << "\n  operations      " << WithPort(options.process.ops_address, ops->port()) << "\n"
            << process->state().ReadyLine() << std::endl;
  for (int64_t looks = 1; !stop.Wait(kLookInterval); ++looks) {
    server->SetReady(process->Health().ok());
    if (looks % kLooksPerLoad == 0) service->LogLoad(kLooksPerLoad * kLookInterval);
  }
  std::cout << "draining" << std::endl;
  ops::EndWithin(options.process.drain_delay + options.process.drain_timeout + ops::kLongestEnd);
  process->state().SetDraining();
  server->SetReady(false);
  absl::SleepFor(options.process.drain_delay);  // a second SIGTERM ends the process
  service->Drain(base::RealClock().Now() + options.process.drain_timeout);
  server->Shutdown(rpc::kLastWords);
  std::cout << "stopped" << std::endl;
  return absl::OkStatus();
}

}  // namespace tessera::service
