#include "common/rpc/request.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/ascii.h"
#include "common/rpc/call_limits.h"

namespace tessera::rpc {
namespace {

constexpr char kRequestId[] = "x-request-id";
constexpr char kTraceparent[] = "traceparent";

std::string Metadata(const grpc::CallbackServerContext& context, const char* key) {
  const auto& all = context.client_metadata();
  const auto found = all.find(key);
  return found == all.end() ? std::string()
                            : std::string(found->second.data(), found->second.size());
}

// Of several nobody knows which one is meant.
std::string OnlyTraceparent(const grpc::CallbackServerContext& context) {
  return context.client_metadata().count(kTraceparent) == 1 ? Metadata(context, kTraceparent)
                                                            : std::string();
}

bool IsGoodRequestId(const std::string& id) {
  return !id.empty() && id.size() <= 128 && std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
}

}  // namespace

RequestContext AcceptRequest(grpc::CallbackServerContext& context, absl::Time now,
                             absl::Duration cap, bool sample_new) {
  RequestContext request;
  request.request_id = Metadata(context, kRequestId);
  if (!IsGoodRequestId(request.request_id)) request.request_id = NewRequestId();
  request.trace = BeginSpan(OnlyTraceparent(context), sample_new);
  const absl::Duration left =
      absl::FromChrono(context.deadline() - std::chrono::system_clock::now());
  request.deadline = now + std::min(left, cap);
  context.AddInitialMetadata(kRequestId, request.request_id);
  return request;
}

void ForwardRequest(const RequestContext& request, absl::Time now, grpc::ClientContext& context) {
  context.AddMetadata(kRequestId, request.request_id);
  if (!request.trace.empty()) context.AddMetadata(kTraceparent, ToTraceparent(request.trace));
  const absl::Duration left =
      std::clamp(request.deadline - now, absl::ZeroDuration(), kLongestCall);
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(left));
}

}  // namespace tessera::rpc
