#pragma once

#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/metrics/metrics.h"

namespace tessera::rpc {

// Counts every call of a server: begun by method, its time by method and status. The methods of
// `service_names`, full names of linked-in services, are there from the start with status OK;
// other statuses from their first time; all other methods (health, reflection) are "other", so that
// no client makes series. `metrics` and `clock` outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMetricsInterceptor(
    metrics::Metrics& metrics, base::Clock& clock, const std::vector<std::string>& service_names);

}  // namespace tessera::rpc
