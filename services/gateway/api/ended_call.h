#pragma once

#include <grpc/grpc.h>
#include <grpcpp/server_context.h>

#include <memory>

#include "common/base/clock.h"
#include "common/base/timers.h"
#include "services/gateway/api/api_options.h"

namespace tessera::gateway {

// What answers to gRPC clients use; all outlive them.
struct ReactorDeps {
  const ApiOptions& options;
  base::Timers& timers;
  base::Clock& clock;
};

// Cuts a call whose client does not read its end: gRPC would keep it, and the request with it, for
// as long as the client likes. What is under way of it fails then. A member of the call's reactor,
// so that it goes with the call. It keeps gRPC's own call, not the context, for the end may come
// while this cuts.
class EndedCall {
 public:
  EndedCall(grpc::CallbackServerContext& context, const ReactorDeps& deps)
      : deps_(deps), call_(Keep(context.c_call())) {}
  ~EndedCall() { deps_.timers.Cancel(timer_); }
  EndedCall(const EndedCall&) = delete;
  EndedCall& operator=(const EndedCall&) = delete;

  // The call has ended but for what its client has not read. Once, before the reactor's last step.
  void OnEnd(bool good) {
    const ApiOptions& options = deps_.options;
    timer_ = deps_.timers.At(
        deps_.clock.Now() + (good ? options.last_read_timeout : options.abort_timeout),
        [call = call_] { grpc_call_cancel(call.get(), nullptr); });
  }

 private:
  static std::shared_ptr<grpc_call> Keep(grpc_call* call) {
    grpc_call_ref(call);
    return {call, grpc_call_unref};
  }

  const ReactorDeps deps_;
  const std::shared_ptr<grpc_call> call_;
  base::Timers::Id timer_ = 0;
};

}  // namespace tessera::gateway
