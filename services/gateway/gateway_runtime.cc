#include "services/gateway/gateway_runtime.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/rpc/call_limits.h"
#include "common/rpc/resolve.h"
#include "common/rpc/status.h"
#include "services/gateway/fleet/ask_any.h"
#include "services/gateway/fleet/grpc_decode_peer.h"
#include "services/gateway/fleet/grpc_vision_client.h"
#include "services/gateway/fleet/routed_clients.h"
#include "services/gateway/fleet/watch_load_call.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera::gateway {
namespace {

constexpr absl::Duration kOneAsk = absl::Seconds(1);  // of several replicas
constexpr absl::Duration kVisionPatience = absl::Seconds(3);

template <typename Info, typename Ask>
absl::StatusOr<Info> AskOne(absl::Duration timeout, const Ask& ask) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(timeout));
  Info info;
  const grpc::Status status = ask(context, info);
  if (!status.ok()) return rpc::FromGrpc(status);
  return info;
}

absl::StatusOr<v1::VisionServiceGetInfoResponse> VisionInfo(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout) {
  return AskOne<v1::VisionServiceGetInfoResponse>(timeout, [&](auto& context, auto& info) {
    return v1::VisionService::NewStub(channel)->GetInfo(&context, {}, &info);
  });
}

absl::StatusOr<v1::DecodeServiceGetInfoResponse> DecodeInfo(
    const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout) {
  return AskOne<v1::DecodeServiceGetInfoResponse>(timeout, [&](auto& context, auto& info) {
    return v1::DecodeService::NewStub(channel)->GetInfo(&context, {}, &info);
  });
}

// `watch`: WatchVisionLoad or WatchDecodeLoad.
template <typename Watch>
void WatchOver(const std::shared_ptr<grpc::Channel>& channel, const Watch& watch,
               Replica& replica) {
  replica.watch = [channel, watch, tracker = std::make_shared<rpc::CallTracker>()](
                      absl::Duration interval, Replica::OnLoad on_load, Replica::OnEnd on_end) {
    return watch(channel, *tracker, interval, std::move(on_load), std::move(on_end));
  };
}

std::unique_ptr<Replica> MakeVision(const std::string& name,
                                    const std::shared_ptr<grpc::Channel>& channel, bool watched,
                                    const base::Clock& clock) {
  auto replica = std::make_unique<Replica>();
  replica->name = name;
  replica->vision = MakeGrpcVisionClient(channel, clock);
  if (watched) WatchOver(channel, &WatchVisionLoad, *replica);
  return replica;
}

std::unique_ptr<Replica> MakeDecode(const std::string& name,
                                    const std::shared_ptr<grpc::Channel>& channel, bool watched,
                                    const base::Clock& clock) {
  auto replica = std::make_unique<Replica>();
  replica->name = name;
  replica->decode = MakeGrpcDecodePeer(channel, clock);
  if (watched) WatchOver(channel, &WatchDecodeLoad, *replica);
  return replica;
}

absl::Status NotMet(const absl::Status& status, const ReplicaSetOptions& service) {
  return base::Annotate(status, absl::StrCat("asking ", service.service, " at ",
                                             absl::StrJoin(service.addresses, ","), " (--",
                                             service.service, "_addresses)"));
}

base::Json ReplicasJson(const std::vector<ReplicaState>& states) {
  base::Json json = base::Json::object();
  for (const ReplicaState& state : states) {
    json[state.view.name] = {{"up", state.view.up},
                             {"draining", state.view.draining},
                             {"broken", state.view.broken},
                             {"full", state.view.full},
                             {"pressure", state.view.pressure}};
  }
  return json;
}

// Of those that take new requests.
DecodeRoom RoomOf(const std::vector<ReplicaState>& states) {
  DecodeRoom room;
  for (const ReplicaState& state : states) {
    room.ended += state.load.requests_ended;
    if (!Works(state.view)) continue;
    ++room.replicas;
    room.free_tokens += state.load.free_tokens;
    room.waiting += state.load.waiting;
  }
  return room;
}

ReplicaSetOptions InProcess(const char* service) {
  ReplicaSetOptions options;
  options.service = service;
  options.addresses = {""};
  return options;
}

}  // namespace

GatewayPeers GatewayPeers::Local(std::shared_ptr<grpc::Channel> vision,
                                 std::shared_ptr<grpc::Channel> decode) {
  GatewayPeers peers;
  peers.vision = InProcess("vision");
  peers.decode = InProcess("decode");
  peers.connect_vision = [vision](const std::string&) { return vision; };
  peers.connect_decode = [decode](const std::string&) { return decode; };
  return peers;
}

GatewayPeers GatewayPeers::Remote(ReplicaSetOptions vision, ReplicaSetOptions decode,
                                  Connect connect) {
  GatewayPeers peers;
  peers.vision = std::move(vision);
  peers.decode = std::move(decode);
  peers.vision.service = "vision";
  peers.decode.service = "decode";
  peers.connect_vision = peers.connect_decode = std::move(connect);
  peers.watched = true;
  return peers;
}

absl::StatusOr<std::unique_ptr<GatewayRuntime>> GatewayRuntime::Create(
    const GatewayOptions& options, GatewayPeers peers, base::Clock& clock,
    metrics::Metrics& metrics) {
  RETURN_IF_ERROR(options.Validate());
  const NameLookup::Resolve resolve = peers.watched ? rpc::ResolveAddress : nullptr;
  auto runtime = std::unique_ptr<GatewayRuntime>(new GatewayRuntime(options, clock, metrics));
  Admission& admission = runtime->admission_;
  runtime->vision_replicas_ = std::make_unique<ReplicaSet>(
      peers.vision,
      ReplicaHooks{
          resolve,
          [connect = peers.connect_vision, watched = peers.watched, &clock](
              const std::string& name) { return MakeVision(name, connect(name), watched, clock); },
          nullptr},
      clock);
  runtime->decode_replicas_ = std::make_unique<ReplicaSet>(
      peers.decode,
      ReplicaHooks{
          resolve,
          [connect = peers.connect_decode, watched = peers.watched, &clock](
              const std::string& name) { return MakeDecode(name, connect(name), watched, clock); },
          [&admission](const std::vector<ReplicaState>& states, uint64_t number) {
            DecodeRoom room = RoomOf(states);
            room.number = number;
            admission.Report(room);
          }},
      clock);
  runtime->watched_ = peers.watched;
  RETURN_IF_ERROR(runtime->Meet(peers));
  return runtime;
}

absl::Status GatewayRuntime::Meet(const GatewayPeers& peers) {
  const auto read = AskAny<v1::DecodeServiceGetInfoResponse>(
      *decode_replicas_, {.patience = options_.peer_timeout, .given_up = peers.given_up},
      [&peers](const std::string& name) {
        return DecodeInfo(peers.connect_decode(name), kOneAsk);
      });
  if (!read.ok()) return NotMet(read.status(), peers.decode);
  const auto seen = AskAny<v1::VisionServiceGetInfoResponse>(
      *vision_replicas_,
      {.patience = std::min(options_.peer_timeout, kVisionPatience), .given_up = peers.given_up},
      [&peers](const std::string& name) {
        return VisionInfo(peers.connect_vision(name), kOneAsk);
      });
  if (!seen.ok()) {
    base::Log(base::LogLevel::kWarning,
              absl::StrCat("gateway: starts without vision: ",
                           NotMet(seen.status(), peers.vision).ToString()));
  } else if (seen->width() != read->width()) {
    return base::Error(
        absl::StatusCode::kFailedPrecondition, "WIDTH_MISMATCH",
        absl::StrCat("vision makes rows of ", seen->width(), " columns, decode reads rows of ",
                     read->width(), ": the two serve different models"));
  }
  v1::GetModelInfoResponse& info = model_info_;
  info.set_model(options_.model_name);
  info.set_family(read->family());
  info.set_context_tokens(read->context_tokens());
  info.set_kv_cache_tokens(read->kv_cache_tokens());
  std::string fingerprint;  // learnt from the first picture where vision does not tell it
  if (seen.ok()) {
    info.set_rows_per_image(seen->rows_per_image());
    info.set_vision_device(seen->device());
    fingerprint = seen->vision_fingerprint();
  }
  info.set_decode_device(read->device());
  vision_ = MakeRoutedVisionClient(*vision_replicas_);
  decode_ = MakeRoutedDecodeClient(*decode_replicas_);
  resolver_ = std::make_unique<ImageResolver>(*vision_, known_, clock_, std::move(fingerprint),
                                              info.rows_per_image(), read->width());
  admission_.SetTotal(static_cast<int64_t>(read->kv_cache_tokens()));
  service_ = std::make_unique<GatewayService>(api_deps(), info);
  return absl::OkStatus();
}

base::Json GatewayRuntime::State() {
  const Admission::Stats stats = admission_.stats();
  base::Json json = {{"inflight_requests", inflight()},
                     {"admission",
                      {{"queued_requests", stats.queued},
                       {"tokens_admitted", stats.tokens_admitted},
                       {"tokens_free", stats.tokens_free}}}};
  if (!watched_) return json;
  json["vision"] = ReplicasJson(vision_replicas_->States());
  json["decode"] = ReplicasJson(decode_replicas_->States());
  return json;
}

bool GatewayRuntime::DecodeIsUp() {
  for (const ReplicaState& state : decode_replicas_->States()) {
    if (Works(state.view)) return true;
  }
  return false;
}

void GatewayRuntime::Drain(absl::Duration timeout) {
  admission_.Drain(clock_.Now() + timeout);
  if (inflight() > 0) {
    running_.AbortAll(base::WithRetry(
        base::Error(absl::StatusCode::kUnavailable, "DRAINING",
                    "the server ends and this took longer than its time; ask again"),
        absl::Seconds(1)));
    admission_.Drain(clock_.Now() + rpc::kLastWords);
  }
  service_->StopAhead();
}

}  // namespace tessera::gateway
