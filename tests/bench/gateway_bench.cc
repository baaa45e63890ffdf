// What a gateway and its two hops add: one gateway, a stub vision and a stub decode that answer at
// once, each behind a TCP port of this machine, in one process with the clients.
#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/error.h"
#include "common/rpc/channel.h"
#include "common/rpc/server.h"
#include "services/gateway/gateway_runtime.h"
#include "tessera/v1/decode.grpc.pb.h"
#include "tessera/v1/gateway.grpc.pb.h"
#include "tessera/v1/vision.grpc.pb.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kClients = 16;
constexpr int kRequests = 4000;                       // of a round, all clients together
constexpr auto kGap = std::chrono::milliseconds(80);  // of one client, where they are paced
constexpr size_t kPictureBytes = 20 << 10;
constexpr char kFingerprint[] = "stub";

template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}

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

// Says `answers` one after another, then ends when its client has nothing more to say.
template <typename Request, typename Response>
class Talk : public grpc::ServerBidiReactor<Request, Response> {
 public:
  Talk() { this->StartRead(&request_); }
  void OnReadDone(bool ok) final {
    if (!ok) {
      reads_ended_ = true;
      return EndIfDone();
    }
    Hear(request_);
    this->StartRead(&request_);
  }
  void OnWriteDone(bool ok) final {
    base::MutexLock lock(mutex_);
    answers_.pop_front();
    if (ok && !answers_.empty()) this->StartWrite(&answers_.front());
    EndLocked();
  }
  void OnDone() final { delete this; }

 protected:
  virtual void Hear(const Request& request) = 0;
  void Say(Response response) {
    base::MutexLock lock(mutex_);
    answers_.push_back(std::move(response));
    if (answers_.size() == 1) this->StartWrite(&answers_.front());
  }

 private:
  void EndIfDone() {
    base::MutexLock lock(mutex_);
    EndLocked();
  }
  void EndLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!reads_ended_ || !answers_.empty() || ended_) return;
    ended_ = true;
    this->Finish(grpc::Status::OK);
  }

  Request request_;
  std::atomic<bool> reads_ended_{false};
  base::Mutex mutex_;
  std::deque<Response> answers_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

// Asks for the bytes, then has the record.
class EncodeTalk final : public Talk<v1::EncodeRequest, v1::EncodeResponse> {
  void Hear(const v1::EncodeRequest& request) override {
    v1::EncodeResponse response;
    if (request.has_offer()) {
      offer_ = request.offer();
      response.mutable_need_bytes();
      return Say(std::move(response));
    }
    received_ += request.chunk().size();
    if (received_ < offer_.size_bytes()) return;
    v1::ImageRef& ref = *response.mutable_ready()->mutable_ref();
    ref.set_key(offer_.digest());
    ref.set_rows(256);
    ref.set_vision_fingerprint(kFingerprint);
    response.mutable_ready()->set_cache(v1::CACHE_TIER_COMPUTED);
    Say(std::move(response));
  }
  v1::EncodeOffer offer_;
  uint64_t received_ = 0;
};

class GenerateTalk final
    : public Talk<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse> {
  void Hear(const v1::DecodeServiceGenerateRequest& request) override {
    if (!request.has_start()) return;
    v1::DecodeServiceGenerateResponse accepted, piece, end;
    accepted.mutable_accepted()->set_prompt_tokens(280);
    piece.mutable_piece()->set_text("37");
    end.mutable_end()->set_finish_reason(v1::FINISH_REASON_STOP);
    end.mutable_end()->mutable_usage()->set_output_tokens(1);
    Say(std::move(accepted));
    Say(std::move(piece));
    Say(std::move(end));
  }
};

class StubVision final : public v1::VisionService::CallbackService {
  grpc::ServerBidiReactor<v1::EncodeRequest, v1::EncodeResponse>* Encode(
      grpc::CallbackServerContext*) override {
    return new EncodeTalk();
  }
  grpc::ServerWriteReactor<v1::VisionServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext*, const v1::VisionServiceWatchLoadRequest*) override {
    v1::VisionServiceWatchLoadResponse load;
    load.set_pending_limit(1 << 20);
    return new OneWord<v1::VisionServiceWatchLoadResponse>(std::move(load));
  }
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::VisionServiceGetInfoRequest*,
                                    v1::VisionServiceGetInfoResponse* info) override {
    info->set_vision_fingerprint(kFingerprint);
    info->set_rows_per_image(256);
    info->set_width(64);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class StubDecode final : public v1::DecodeService::CallbackService {
  grpc::ServerBidiReactor<v1::DecodeServiceGenerateRequest, v1::DecodeServiceGenerateResponse>*
  Generate(grpc::CallbackServerContext*) override {
    return new GenerateTalk();
  }
  grpc::ServerWriteReactor<v1::DecodeServiceWatchLoadResponse>* WatchLoad(
      grpc::CallbackServerContext*, const v1::DecodeServiceWatchLoadRequest*) override {
    v1::DecodeServiceWatchLoadResponse load;
    load.set_blocks_total(1 << 20);
    load.set_blocks_free(1 << 20);
    load.set_block_tokens(16);
    load.set_waiting_limit(1 << 20);
    return new OneWord<v1::DecodeServiceWatchLoadResponse>(std::move(load));
  }
  grpc::ServerUnaryReactor* GetInfo(grpc::CallbackServerContext* context,
                                    const v1::DecodeServiceGetInfoRequest*,
                                    v1::DecodeServiceGetInfoResponse* info) override {
    info->set_context_tokens(4096);
    info->set_kv_cache_tokens(16 << 20);
    info->set_width(64);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// In the order of birth.
struct Fleet {
  Fleet() {
    const auto start = [](grpc::Service& service, const char* name) {
      return OrDie(rpc::Server::Start({.address = "127.0.0.1:0"}, {&service}, {name}));
    };
    vision_server = start(vision, "tessera.v1.VisionService");
    decode_server = start(decode, "tessera.v1.DecodeService");
    gateway::GatewayOptions options;
    options.model_name = "m";
    options.handle_key = std::string(32, 'k');
    gateway::ReplicaSetOptions visions, decodes;
    visions.addresses = {absl::StrCat("127.0.0.1:", vision_server->port())};
    decodes.addresses = {absl::StrCat("127.0.0.1:", decode_server->port())};
    visions.load_silence = decodes.load_silence = absl::Hours(24);
    runtime = OrDie(gateway::GatewayRuntime::Create(
        options,
        gateway::GatewayPeers::Remote(visions, decodes,
                                      [](const std::string& name) { return rpc::Connect(name); }),
        base::RealClock(), metrics));
    server = start(*runtime->service(), "tessera.v1.GatewayService");
  }
  ~Fleet() {
    server->Shutdown(absl::Seconds(1));
    server.reset();
    runtime.reset();
    for (rpc::Server* stub : {vision_server.get(), decode_server.get()}) {
      stub->Shutdown(absl::ZeroDuration());
    }
  }

  metrics::Metrics metrics{"m"};
  StubVision vision;
  StubDecode decode;
  std::unique_ptr<rpc::Server> vision_server, decode_server;
  std::unique_ptr<gateway::GatewayRuntime> runtime;
  std::unique_ptr<rpc::Server> server;
};

v1::GenerateRequest Question(uint64_t picture) {
  std::string bytes(kPictureBytes, 'p');
  bytes.replace(0, sizeof(picture), reinterpret_cast<const char*>(&picture), sizeof(picture));
  v1::GenerateRequest request;
  v1::Message& message = *request.add_messages();
  message.set_role("user");
  message.add_parts()->mutable_image()->mutable_inline_data()->set_data(std::move(bytes));
  message.add_parts()->set_text("What is the price on row 2?");
  return request;
}

double Ask(v1::GatewayService::Stub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  const auto start = Clock::now();
  const grpc::Status status = stub.Generate(&context, request, &response);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.error_message().c_str());
    std::exit(1);
  }
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Milliseconds of each answer. `paced`: each client asks every kGap, else when it has its answer.
std::vector<double> Round(int port, bool fresh, bool paced) {
  static std::atomic<uint64_t> next_picture{1};
  std::vector<std::vector<double>> times(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&mine = times[static_cast<size_t>(i)], port, fresh, paced, i] {
      const auto channel = rpc::Connect(absl::StrCat("127.0.0.1:", port));
      const auto stub = v1::GatewayService::NewStub(channel);
      Ask(*stub, Question(0));  // connects, and makes the picture 0 known
      auto turn = Clock::now() + kGap * i / kClients;
      for (int n = 0; n < (paced ? kRequests / 4 : kRequests) / kClients; ++n) {
        const v1::GenerateRequest request = Question(fresh ? next_picture++ : 0);
        if (paced) std::this_thread::sleep_until(turn += kGap);
        mine.push_back(Ask(*stub, request));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  std::vector<double> all;
  for (const std::vector<double>& some : times) all.insert(all.end(), some.begin(), some.end());
  return all;
}

void Report(int port, bool fresh, bool paced) {
  const auto start = Clock::now();
  std::vector<double> times = Round(port, fresh, paced);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  std::sort(times.begin(), times.end());
  const auto at = [&times](double part) {
    return times[static_cast<size_t>(static_cast<double>(times.size() - 1) * part)];
  };
  std::printf("%d clients, %-9s %-6s picture   p50 %6.2f   p90 %6.2f   p99 %6.2f ms   %6.0f /s\n",
              kClients, paced ? "paced," : "at once,", fresh ? "new" : "known", at(0.5), at(0.9),
              at(0.99), static_cast<double>(times.size()) / seconds);
}

}  // namespace
}  // namespace tessera

int main() {
  tessera::Fleet fleet;
  for (const bool paced : {true, false}) {
    for (const bool fresh : {false, true}) tessera::Report(fleet.server->port(), fresh, paced);
  }
}
