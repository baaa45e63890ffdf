#include "tests/support/stub_fleet.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/rpc/channel.h"

namespace tessera::testing {
namespace {

constexpr char kFingerprint[] = "stub";

// One word of a load that never changes, then silence to the end of the call.
template <typename Load>
class OneWord final : public grpc::ServerWriteReactor<Load> {
 public:
  explicit OneWord(Load load) : load_(std::move(load)) { this->StartWrite(&load_); }
  void OnCancel() override { this->Finish(grpc::Status::CANCELLED); }
  void OnDone() override { delete this; }

 private:
  const Load load_;
};

// Says what Hear has it say, in its order, then ends when its client has nothing more to say.
template <typename Request, typename Response>
class Talk : public grpc::ServerBidiReactor<Request, Response> {
 public:
  explicit Talk(std::atomic<int>& calls) : calls_(calls) {
    ++calls_;
    this->StartRead(&request_);
  }
  ~Talk() override { --calls_; }
  void OnReadDone(bool ok) final {
    if (ok) {
      Hear(request_);
      return this->StartRead(&request_);
    }
    base::MutexLock lock(mutex_);
    reads_ended_ = true;
    EndIfDone();
  }
  void OnWriteDone(bool ok) final {
    base::MutexLock lock(mutex_);
    answers_.pop_front();
    if (!ok) answers_.clear();  // the client has gone
    if (!answers_.empty()) WriteFirst();
    EndIfDone();
  }
  void OnDone() final { delete this; }

 protected:
  virtual void Hear(const Request& request) = 0;
  // `last`: and ends, whatever the client may have to say.
  void Say(Response response, bool last = false) {
    base::MutexLock lock(mutex_);
    answers_.push_back(std::move(response));
    last_ = last;
    if (answers_.size() == 1) WriteFirst();
  }

 private:
  void WriteFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!last_ || answers_.size() > 1) return this->StartWrite(&answers_.front());
    if (std::exchange(ended_, true)) return;
    this->StartWriteAndFinish(&answers_.front(), grpc::WriteOptions(), grpc::Status::OK);
  }
  void EndIfDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (reads_ended_ && answers_.empty() && !std::exchange(ended_, true)) {
      this->Finish(grpc::Status::OK);
    }
  }

  std::atomic<int>& calls_;
  Request request_;
  base::Mutex mutex_;
  std::deque<Response> answers_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool reads_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false;  // nothing comes behind the last of answers_
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

class EncodeTalk final : public Talk<v1::EncodeRequest, v1::EncodeResponse> {
 public:
  using Talk::Talk;

 private:
  void Hear(const v1::EncodeRequest& request) override {
    v1::EncodeResponse response;
    if (request.has_offer()) {
      offer_ = request.offer();
      received_ = offer_.first_chunk().size();
      offer_.clear_first_chunk();
      if (received_ == 0) {
        response.mutable_need_bytes();
        return Say(std::move(response));
      }
    } else {
      received_ += request.chunk().size();
    }
    if (received_ < offer_.size_bytes()) {
      if (received_ < offer_.size_bytes() - offer_.held_bytes()) return;
      *response.mutable_plan()->mutable_ref() = Ref();
      return Say(std::move(response));
    }
    *response.mutable_ready()->mutable_ref() = Ref();
    response.mutable_ready()->set_cache(v1::CACHE_TIER_COMPUTED);
    Say(std::move(response));
  }
  v1::ImageRef Ref() const {
    v1::ImageRef ref;
    ref.set_key(offer_.digest());
    ref.set_rows(256);
    ref.set_width(64);
    ref.set_vision_fingerprint(kFingerprint);
    return ref;
  }
  v1::EncodeOffer offer_;
  uint64_t received_ = 0;
};

class GenerateTalk final
    : public Talk<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse> {
 public:
  GenerateTalk(std::atomic<int>& calls, absl::Duration gap) : Talk(calls), gap_(gap) {}

 private:
  void Hear(const v1::DecodeServiceGenerateRequest& request) override {
    if (!request.has_start()) return;
    const uint32_t pieces = std::max(request.start().options().max_tokens(), uint32_t{1});
    v1::DecodeServiceGenerateResponse accepted, piece, end;
    accepted.mutable_accepted()->set_prompt_tokens(280);
    piece.mutable_piece()->set_text("37");
    end.mutable_end()->set_finish_reason(v1::FINISH_REASON_STOP);
    end.mutable_end()->mutable_usage()->set_output_tokens(pieces);
    Say(std::move(accepted));
    for (uint32_t i = 0; i < pieces; ++i) {
      if (gap_ > absl::ZeroDuration()) absl::SleepFor(gap_);
      Say(piece);
    }
    Say(std::move(end), true);
  }

  const absl::Duration gap_;
};

grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext& context) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

std::unique_ptr<rpc::Server> Serve(grpc::Service& service, const char* name, int port) {
  auto server =
      rpc::Server::Start({.address = absl::StrCat("127.0.0.1:", port)}, {&service}, {name});
  CHECK(server.ok());
  return *std::move(server);
}

}  // namespace

grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* StubVisionService::Encode(
    grpc::CallbackServerContext*) {
  return new EncodeTalk(calls_);
}

grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* StubVisionService::WatchLoad(
    grpc::CallbackServerContext*, const v1::VisionServiceWatchLoadRequest*) {
  v1::VisionServiceWatchLoadResponse load;
  load.set_pending_limit(1 << 20);
  return new OneWord<v1::VisionServiceWatchLoadResponse>(std::move(load));
}

grpc::ServerUnaryReactor* StubVisionService::GetInfo(grpc::CallbackServerContext* context,
                                                     const v1::VisionServiceGetInfoRequest*,
                                                     v1::VisionServiceGetInfoResponse* info) {
  info->set_vision_fingerprint(kFingerprint);
  info->set_rows_per_image(256);
  info->set_width(64);
  return Done(*context);
}

grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
StubDecodeService::Generate(grpc::CallbackServerContext*) {
  return new GenerateTalk(calls_, gap_);
}

grpc::ServerWriteReactor<v1::DecodeServiceWatchLoadResponse>* StubDecodeService::WatchLoad(
    grpc::CallbackServerContext*, const v1::DecodeServiceWatchLoadRequest*) {
  v1::DecodeServiceWatchLoadResponse load;
  load.set_blocks_total(1 << 20);
  load.set_blocks_free(1 << 20);
  load.set_block_tokens(16);
  load.set_waiting_limit(1 << 20);
  return new OneWord<v1::DecodeServiceWatchLoadResponse>(std::move(load));
}

grpc::ServerUnaryReactor* StubDecodeService::GetInfo(grpc::CallbackServerContext* context,
                                                     const v1::DecodeServiceGetInfoRequest*,
                                                     v1::DecodeServiceGetInfoResponse* info) {
  info->set_context_tokens(4096);
  info->set_kv_cache_tokens(16 << 20);
  info->set_width(64);
  return Done(*context);
}

StubPeers::StubPeers(int vision_port, int decode_port, absl::Duration gap)
    : decode_(gap),
      vision_server_(Serve(vision_, "tessera.v1.VisionService", vision_port)),
      decode_server_(Serve(decode_, "tessera.v1.DecodeService", decode_port)) {}

StubPeers::~StubPeers() {
  vision_server_->Shutdown(absl::ZeroDuration());  // of what watches
  decode_server_->Shutdown(absl::ZeroDuration());
}

StubFleet::StubFleet() : StubFleet(std::make_unique<StubPeers>()) {}

StubFleet::StubFleet(std::unique_ptr<StubPeers> peers) : peers_(std::move(peers)) {
  Start(peers_->vision_port(), peers_->decode_port());
}

StubFleet::StubFleet(int vision_port, int decode_port) { Start(vision_port, decode_port); }

void StubFleet::Start(int vision_port, int decode_port) {
  gateway::GatewayOptions options;
  options.model_name.assign(1, 'm');  // GCC 12 sees an overlap in ="m"
  options.handle_key = std::string(32, 'k');
  options.peer_timeout = absl::Minutes(5);
  options.max_requests = 1 << 20;
  gateway::ReplicaSetOptions vision, decode;
  vision.addresses = {absl::StrCat("127.0.0.1:", vision_port)};
  decode.addresses = {absl::StrCat("127.0.0.1:", decode_port)};
  vision.load_silence = decode.load_silence = absl::Hours(24);
  auto runtime = gateway::GatewayRuntime::Create(
      options,
      gateway::GatewayPeers::Remote(vision, decode,
                                    [](const std::string& name) { return rpc::Connect(name); }),
      base::RealClock(), metrics_);
  CHECK(runtime.ok());
  runtime_ = *std::move(runtime);
  server_ = Serve(*runtime_->service(), "tessera.v1.GatewayService", 0);
}

StubFleet::~StubFleet() {
  server_->Shutdown(absl::Seconds(1));
  server_.reset();
  runtime_.reset();
}

std::string StubFleet::address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

}  // namespace tessera::testing
