#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/admission/admission_queue.h"
#include "services/gateway/api/api_options.h"

namespace tessera::gateway {

// Everything that may be said of a gateway; each room has a base of its own.
struct GatewayOptions : ApiOptions {
  int max_requests = 256;                           // under way; beyond it RESOURCE_EXHAUSTED
  int max_queued = 128;                             // of these, waiting for room in decode
  absl::Duration peer_timeout = absl::Seconds(10);  // to find vision and decode at the start
  size_t known_images = 65536;                      // refs remembered

  absl::Status Validate() const;  // INVALID_ARGUMENT names the flag
  AdmissionLimits admission_limits() const;
};

}  // namespace tessera::gateway
