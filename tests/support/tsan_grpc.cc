// What the thread sanitizer cannot see, because Debian's gRPC is not built for it: how gRPC hands
// work from thread to thread. These functions stand before the library's own (the executable's
// symbols win), do what those do, and tell the sanitizer of the orders that gRPC promises: an
// operation starts before it completes, a server starts before its calls and ends after them, the
// reactions of a call come before its OnDone. Nothing else is told, neither gRPC's inner locks nor
// what goes over a wire: by those, any two callbacks that do not overlap would seem to be in order,
// and a race of ours between them would not be reported. So what a test changes between calls, and
// a service reads, is locked or changed while the service is stopped. Linked into the threaded
// tests of builds with the thread sanitizer; written for gRPC 1.51.

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/alarm.h>
#include <grpcpp/support/client_callback.h>
#include <grpcpp/support/server_callback.h>
#include <sanitizer/tsan_interface.h>

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"

namespace {

// The library's function behind ours.
template <typename F>
F* Real(const char* symbol) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, symbol));
}

// Released and acquired by their addresses.
char servers_started, calls_ended, alarms_set;

}  // namespace

// ------------------------------------------------------------------ operations, by their tag

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static auto* const real = Real<decltype(grpc_call_start_batch)>("grpc_call_start_batch");
  __tsan_release(tag);
  return real(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_next)>("grpc_completion_queue_next");
  const grpc_event event = real(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  __tsan_acquire(&servers_started);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static auto* const real =
      Real<decltype(grpc_completion_queue_pluck)>("grpc_completion_queue_pluck");
  const grpc_event event = real(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(tag);
  return event;
}

// ------------------------------------------------------------------ a server's life

// What was before its start is before its calls.
void grpc_server_start(grpc_server* server) {
  static auto* const real = Real<decltype(grpc_server_start)>("grpc_server_start");
  __tsan_release(&servers_started);
  real(server);
}

// A call's reactions are before its server's end. This comes after OnDone.
void grpc_call_unref(grpc_call* call) {
  static auto* const real = Real<decltype(grpc_call_unref)>("grpc_call_unref");
  __tsan_release(&calls_ended);
  real(call);
}

void grpc_server_destroy(grpc_server* server) {
  static auto* const real = Real<decltype(grpc_server_destroy)>("grpc_server_destroy");
  real(server);
  __tsan_acquire(&calls_ended);
}

// ------------------------------------------------------------------ slices

// Who lets go of bytes last frees them, after what all others did with theirs: messages of several
// calls may lie in one buffer.
void grpc_slice_unref(grpc_slice slice) {
  static auto* const real = Real<decltype(grpc_slice_unref)>("grpc_slice_unref");
  if (slice.refcount != nullptr) {
    __tsan_release(slice.refcount);
    __tsan_acquire(slice.refcount);
  }
  real(slice);
}

// ------------------------------------------------------------------ sockets

// gRPC closes the sockets that we give it out of sight: their numbers, used again, would race.
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
int __real_socketpair(int domain, int type, int protocol, int ends[2]);

int __wrap_socketpair(int domain, int type, int protocol, int ends[2]) {
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  const int result = __real_socketpair(domain, type, protocol, ends);
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  return result;
}

// ------------------------------------------------------------------ a reactor's lock

// The Abseil lock that gRPC's headers put into each reactor: only what is compiled into the
// executable comes here (--wrap), not the libraries' own locks.
void __real__ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex);
void __real__ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex);

void __wrap__ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex) {
  __real__ZN4absl7debian35Mutex4LockEv(mutex);
  __tsan_acquire(mutex);
}

void __wrap__ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex) {
  __tsan_release(mutex);
  __real__ZN4absl7debian35Mutex6UnlockEv(mutex);
}

}  // extern "C"

// ------------------------------------------------------------------ reactors

// The library runs what follows a call on an executor of its own: a thread each does the same and
// is seen. A call's count of outstanding reactions is read, for some of them count down out of
// sight.
namespace grpc::internal {

void ServerCallbackCall::ScheduleOnDone(bool inline_ondone) {
  callbacks_outstanding_.load(std::memory_order_acquire);
  if (inline_ondone) return CallOnDone();
  std::thread([this] { CallOnDone(); }).detach();
}

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  on_cancel_conditions_remaining_.load(std::memory_order_acquire);
  if (reactor->InternalInlineable()) return reactor->OnCancel();
  Ref();
  std::thread([this, reactor] {
    reactor->OnCancel();
    MaybeDone();
  }).detach();
}

void ClientReactor::InternalScheduleOnDone(Status status) {
  std::thread([this, status = std::move(status)] { OnDone(status); }).detach();
}

}  // namespace grpc::internal

// ------------------------------------------------------------------ alarms

namespace grpc {

void Alarm::SetInternal(gpr_timespec deadline, std::function<void(bool)> callback) {
  static auto* const real = Real<void(Alarm*, gpr_timespec, std::function<void(bool)>)>(
      "_ZN4grpc5Alarm11SetInternalE12gpr_timespecSt8functionIFvbEE");
  std::function<void(bool)> seen = [callback = std::move(callback)](bool ok) {
    __tsan_acquire(&alarms_set);  // before `callback` is read
    callback(ok);
  };
  __tsan_release(&alarms_set);
  real(this, deadline, std::move(seen));
}

}  // namespace grpc
