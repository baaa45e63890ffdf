#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace tessera::testing {

// A backend whose ops only take place in Synchronize(), as on a device with a stream of its own.
// Until then a Download's destination is NaN, a Sampled is nonsense, and host memory (uploads, ids,
// slots, tables, sampling rows) has not been read. Wraps `inner`, whose handles it hands out; the
// numbers are inner's. Where `failure` is given, Synchronize ends as it says.
std::unique_ptr<kernels::Backend> MakeDeferredBackend(std::unique_ptr<kernels::Backend> inner,
                                                      std::function<absl::Status()> failure = {});

}  // namespace tessera::testing
