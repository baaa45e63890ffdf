#include "services/gateway/front.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/rpc/call_limits.h"
#include "common/rpc/resolve.h"
#include "services/gateway/http/http_done.h"

namespace tessera::gateway {
namespace {

constexpr std::chrono::milliseconds kLook(20);  // at what is under way, at the end

// The certificates of gRPC are those of HTTP, too.
http::HttpOptions WithTls(http::HttpOptions options, const rpc::TlsFiles& tls) {
  options.tls_certificate = tls.cert;
  options.tls_key = tls.key;
  options.tls_client_ca = tls.ca;
  return options;
}

}  // namespace

absl::Status FrontOptions::Check() const {
  RETURN_IF_ERROR(rpc::CheckExposure(access, "grpc_address", grpc_address));
  RETURN_IF_ERROR(rpc::CheckExposure(access, "http_address", http.address));
  RETURN_IF_ERROR(WithTls(http, access.tls).Validate());
  RETURN_IF_ERROR(rpc::CheckFree("grpc_address", grpc_address));
  return rpc::CheckFree("http_address", http.address);
}

absl::StatusOr<std::unique_ptr<Front>> Front::Start(const FrontOptions& options,
                                                    const FrontDeps& deps) {
  auto front = std::unique_ptr<Front>(new Front(deps));
  const rpc::ServerOptions grpc = {.address = options.grpc_address,
                                   .max_receive_bytes = options.max_message_bytes,
                                   .reflection = options.reflection.value_or(!deps.keys.on()),
                                   .metrics = &deps.process.metrics(),
                                   .tls = options.access.tls,
                                   .ready = false};
  ASSIGN_OR_RETURN(front->grpc_, rpc::Server::Start(grpc, {deps.gateway.service()},
                                                    {"tessera.v1.GatewayService"}));
  if (options.http.address.empty()) return front;
  http::HttpDeps http = {
      .api = deps.gateway.api_deps(),
      .model = deps.gateway.model_info(),
      .version = base::kVersion,
      .tenant = [&keys = deps.keys](absl::string_view key) { return keys.TenantOf(key); },
      .health = [&process = deps.process] { return process.Health(); },
      .done = http::TellRefusals(deps.gateway.api_deps().answer.metrics, deps.process.spans())};
  ASSIGN_OR_RETURN(front->http_, http::HttpServer::Start(WithTls(options.http, options.access.tls),
                                                         std::move(http)));
  return front;
}

void Front::Drain(absl::Duration timeout, absl::Duration delay) {
  deps_.process.state().SetDraining();
  grpc_->SetReady(false);
  if (http_) http_->AnnounceEnd();
  absl::SleepFor(delay);  // a second SIGTERM ends the process
  const absl::Time deadline = base::RealClock().Now() + timeout;
  const auto left = [deadline] {
    return std::max(absl::ZeroDuration(), deadline - base::RealClock().Now());
  };
  if (http_) http_->StopListening();
  // Nothing new arrives from then on, so that nothing has to be refused.
  std::future<void> closed = std::async(
      std::launch::async, [this, timeout] { grpc_->Shutdown(timeout + 2 * rpc::kLastWords); });
  // Streams that only watch the health of this server would hold that until its deadline: it is
  // ended for them once nothing else has been under way for a while.
  absl::Time calm = base::RealClock().Now();
  while (closed.wait_for(kLook) != std::future_status::ready && left() > absl::ZeroDuration()) {
    if (deps_.gateway.inflight() > 0) calm = base::RealClock().Now();
    if (base::RealClock().Now() - calm > rpc::kLastWords) break;
  }
  deps_.gateway.Drain(left());
  if (http_) http_->Shutdown(std::max(rpc::kLastWords, left()));
  if (closed.wait_for(kLook) != std::future_status::ready) grpc_->EndCalls();
}

}  // namespace tessera::gateway
